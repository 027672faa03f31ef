"""The account of how a program was compiled: read back as it was, or refused with what is wrong."""

import json

import pytest

from hlo_disc.compiled.account import Account, Condition, Form, Held, Launch, Slot, Split, parse
from hlo_disc.errors import FormatError

FORM = Form("k0", [Condition("n", "<=", 8)], False, True, "0")
ACCOUNT = Account(
    "f",
    ["model.py:1:2 (f)", ""],
    [Launch([FORM], ["float32(n)"], [("add", 1, 2)], "8*n", "n", "", 0)],
    [["while", [["body", [0, ["case", [["0", [0]]]]]]]], 0],
    [Slot("4*n", False, [Held("float32(n)", "4*n", 0, 1)])],
    1,
    [Split("sort", 0, "it sorts", -1), Split("add", 1, "", 0)],
    0,
)


def test_read_as_written():
    again = parse(ACCOUNT.text())
    assert again == ACCOUNT and again.launches[0].forms[0].when[0].bound == 8


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ('["add",1,2]', '["add",1]', "is no tuple"),
        ('["add",1,2]', '["add","1",2]', "'1' is no <class 'int'>"),
        ('["add",1,2]', '["add",2,2]', "there is no place 2 of 2"),
        ('["add",1,2]', '["add",-1,2]', "there is no place -1 of 2"),
        ('"<=",8]', '"<=",8,9]', "Condition"),
        ('"it sorts",-1', '"it sorts",1', "there is no launch 1 of 1"),
        ('["0",[0]]', '["0",[1]]', "there is no launch 1 of 1"),
        ('["0",[0]]', '["0",0]', "is no"),
        ('["0",[0]]', "[" * 5000 + "]" * 5000, "damaged"),
        ('"f",', "", "is no <class 'hlo_disc.compiled.account.Account'>"),
        ("]", "", "damaged"),
    ],
)
def test_refused(old: str, new: str, words: str):
    assert json.loads(ACCOUNT.text()) and old in ACCOUNT.text()
    with pytest.raises(FormatError, match=words):
        parse(ACCOUNT.text().replace(old, new, 1))
