"""The command line: thin verbs over `npusim.simulate` and its neighbours."""

from npusim.cli.main import main

__all__ = ["main"]
