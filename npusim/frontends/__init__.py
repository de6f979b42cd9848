"""Signatures that users know from elsewhere, over `npusim.api`."""
