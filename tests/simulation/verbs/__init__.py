"""The verbs of a life, a module for each kind of actor. Importing this enters all of them into the table."""

from tests.simulation.verbs import operator, rot, tiering, writing

ALL = (operator, rot, tiering, writing)
