"""Imported once by the server process that the algebra workers are forked from: a new worker starts warm."""

from trinity.rewards import algebra

algebra.warm_up()
