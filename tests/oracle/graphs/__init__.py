"""Graphs of DHLO that tests build, draw at random and make smaller."""
