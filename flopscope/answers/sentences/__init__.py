"""Sentences: each is made from a record of facts of flopscope.answers, and from nothing else.

A rule of the advice checks its premises in what was recorded, and collects the facts. The sentence is found by their
type (answers/advice.py) and cannot say more than they do. Notes, and what is said of ranks, stand here as well.
"""
