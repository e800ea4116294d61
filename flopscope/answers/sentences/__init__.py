"""Sentences: each is made from a record of facts of flopscope.answers, and from nothing else.

A rule of the advice checks its premises in what was recorded, and collects the facts. The sentence is found by their
type (advice.py) and cannot say more than they do. Notes, verdicts and the texts of tables stand here as well.
"""
