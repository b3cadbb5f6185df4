"""Where a MongoDB store is, and how to speak of it without telling its user's password."""

from dataclasses import dataclass, field
from urllib.parse import unquote

from pymongo.errors import ConfigurationError
from pymongo.uri_parser import parse_uri

from dagster_bus.errors import UsageError

SCHEME = "mongodb://"
SRV_SCHEME = "mongodb+srv://"
EXAMPLE = "mongodb://host:27017/database?replicaSet=rs0"


@dataclass(frozen=True, slots=True)
class MongoAddress:
    """A checked URL. `shown` is what may be printed of it: neither users nor options."""

    url: str = field(repr=False)
    database: str
    shown: str
    options: frozenset[str]
    """Names of the options that the URL sets, in lower case."""


def parse_address(url: str) -> MongoAddress:
    """Take a URL apart, or say what is wrong with it."""
    scheme, _, rest = url.partition("://")
    authority, _, path = rest.partition("/")
    database, _, query = path.partition("?")
    pairs = [pair for pair in query.replace(";", "&").split("&") if pair]
    _require_valid(authority, database, pairs)
    if not database:
        raise UsageError(
            f"the address of the store names no database: write it after the hosts, as in {EXAMPLE}"
        )
    hosts = authority.rpartition("@")[2]
    return MongoAddress(
        url=url,
        database=unquote(database),
        shown=f"{scheme}://{hosts}/{database}",
        options=frozenset(pair.partition("=")[0].lower() for pair in pairs),
    )


def _require_valid(authority: str, database: str, pairs: list[str]) -> None:
    """Nothing of a URL that cannot be taken apart is shown: any piece may be the password."""
    checked = [pair for pair in pairs if not pair.lower().startswith("srv")]
    if _is_valid(f"{SCHEME}{authority}/{database}?{'&'.join(checked)}"):
        return
    for pair in checked:
        if not _is_valid(f"{SCHEME}localhost/?{pair}"):
            raise UsageError(
                f"the option {pair.partition('=')[0]!r} in the address of the store is unknown or "
                "has a wrong value; see MongoDB's list of connection string options"
            )
    raise UsageError(
        f"the address of the store is not a MongoDB URL: write {EXAMPLE}, with user name and "
        "password percent-encoded"
    )


def _is_valid(url: str) -> bool:
    try:
        found = parse_uri(url, warn=False)
    except (ConfigurationError, ValueError):
        return False
    return found["collection"] is None
