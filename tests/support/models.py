"""Payload models that the tests declare."""

from decimal import Decimal

from pydantic import BaseModel


class Payment(BaseModel):
    payment_id: str
    amount: Decimal
