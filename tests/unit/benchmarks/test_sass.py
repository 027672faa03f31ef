"""The count of instructions in a disassembler's listing."""

from __future__ import annotations

import pytest

from benchmarks.instructions.sass import Loop, listed

LISTING = """
.text.k0_map:
        /*0000*/                   S2R R0, SR_TID.X ;
.L_x_0:
        /*0010*/                   MOV R1, R2 ;
.L_x_1:
        /*0020*/                   LDG.E.128 R4, [R2.64] ;
        /*0030*/               @P1 BRA `(.L_x_2) ;
        /*0040*/                   MUFU.RCP R5, R4 ;
        /*0050*/                   BSYNC B0 ;
.L_x_2:
        /*0060*/              @!P2 STG.E.64 [R2.64], R4 ;
        /*0070*/                   STG.E [R2.64], R4 ;
        /*0080*/               @P0 BRA `(.L_x_1) ;
        /*0090*/               @P3 BRA `(.L_x_0) ;
        /*00a0*/                   EXIT ;
        /*00b0*/                   NOP;
.text.k1_none:
        /*0000*/                   EXIT ;
"""


def test_innermost_loops_on_their_usual_way():
    """Loops are counted if they are innermost. Instructions that a jump leaves out are not counted."""
    kernels = listed(LISTING)
    assert kernels["k0_map"].loops == (Loop(instructions=5, elements=3),)
    assert kernels["k0_map"].instructions == 11 and kernels["k1_none"].loops == ()
    assert kernels["k0_map"].each(1) == pytest.approx(5 / 3)
