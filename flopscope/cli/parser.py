"""A parser of command lines whose errors name the command and suggest what a misspelt word may mean."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any, NoReturn

from flopscope.support.suggest import did_you_mean

__all__ = ["Parser"]


class Parser(argparse.ArgumentParser):
    """An ArgumentParser that takes options in full only; that of the command is ``parser`` of what it parsed."""

    def __init__(self, *args: Any, **keywords: Any) -> None:
        super().__init__(*args, **{"allow_abbrev": False, **keywords})
        self.set_defaults(parser=self)

    def refuse(self, unknown: Sequence[str]) -> NoReturn:
        """End with an error about arguments that this command does not have."""
        option = next((text.split("=")[0] for text in unknown if text.startswith("-")), "")
        hint = did_you_mean(option, self._option_string_actions) if option else ""
        self.error(f"unrecognized arguments: {' '.join(unknown)}{hint}")

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        try:
            super()._check_value(action, value)
        except argparse.ArgumentError as problem:
            problem.message += did_you_mean(str(value), map(str, action.choices or ()))
            raise
