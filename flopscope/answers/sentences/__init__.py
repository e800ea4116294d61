"""Sentences: each is made from the facts of a program, its arguments, and from nothing else.

A rule of the advice checks its premises in what was recorded, and calls the sentence with the facts. Times are in µs,
sizes in bytes; ``per`` says of what: "a step" or "in the profile". Notes and sentences on ranks stand here as well.
"""
