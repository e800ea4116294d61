"""Sentences: each is the text of a record of facts, and is made from these alone.

A rule of the advice checks its premises in what was recorded, collects the facts in a record of this package, and
claims time. The record is a NamedTuple with an ``action``, the headline, and a ``reason``. Both are made from its
fields alone, so a sentence cannot say more than its facts.
"""
