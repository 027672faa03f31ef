"""Device functions in modules of their own: made once a program, and known to every kernel that needs them."""

from __future__ import annotations

from hlo_disc.dynamic_hlo.sizes.asked import AskedFacts
from hlo_disc.dynamic_hlo.sizes.dim import Dim
from hlo_disc.dynamic_hlo.sizes.facts import ShapeFacts, Truth
from hlo_disc.stitch.codegen.module import LinkedFunctions
from hlo_disc.stitch.scheduling import build_linked_kernel

B = Dim.symbol("b")


class Form:
    """A form whose kernel calls a function that calls another one; building that one asks the facts."""

    name = "form"

    def __init__(self, facts: AskedFacts, constant: int = 0) -> None:
        self.facts, self.constant = facts, constant

    def build(self, b, name):
        def inner():
            self.facts.at_most(B, 8)

        def outer():
            b.module.shared(("inner",), "inner", [], inner)()
            b.index(self.constant)

        with b.module.kernel(name, []):
            b.module.shared(("outer",), "outer", [], outer)()


def test_kernels_that_share_a_function_have_its_questions_and_all_that_it_calls():
    functions = LinkedFunctions(AskedFacts(ShapeFacts()))
    first, second = (build_linked_kernel(Form(functions.facts), functions, False) for _ in range(2))
    assert first.answers == second.answers == {("at_most", (B, 8)): Truth.UNKNOWN}
    assert [name.split("_")[0] for name in first.calls] == ["inner", "outer"]
    assert first.calls == second.calls, "made once"
    assert first.types == second.types == {"form": "() -> ()"}
    assert all(call.answers == first.answers for call in first.calls.values())


def test_a_form_of_host_code_alone_has_no_kernel():
    class Host:
        name = "tiny"

        def build(self, b, name):
            pass

    built = build_linked_kernel(Host(), LinkedFunctions(AskedFacts(ShapeFacts())), False)
    assert not built.types and not built.calls and not built.answers
