"""The stub flopscope/_core.pyi declares all members of the C module, with the same arguments."""

import ast
import copy
import inspect
import pickle
import pydoc
import runpy
import time
from pathlib import Path

import pytest
from helpers import ROOT

import flopscope as fs

TEXT = (Path(fs.__file__).parent / "_core.pyi").read_text(encoding="utf-8")
STUB = ast.parse(TEXT)
FUNCTIONS = {node.name: node for node in STUB.body if isinstance(node, ast.FunctionDef)}
CLASSES = {node.name: node for node in STUB.body if isinstance(node, ast.ClassDef)}
# The members of every class, and those of struct sequences.
INHERITED = {*dir(object), "__module__", "__dict__", "__weakref__"}
STRUCT_SEQUENCE = {*dir(time.struct_time)} - {name for name in dir(time.struct_time) if name.startswith("tm_")}


def names_in(body: list[ast.stmt]) -> set[str]:
    names = {node.name for node in body if isinstance(node, (ast.FunctionDef, ast.ClassDef))}
    names |= {node.target.id for node in body if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name)}
    return names | {t.id for n in body if isinstance(n, ast.Assign) for t in n.targets if isinstance(t, ast.Name)}


def parameters_in(node: ast.FunctionDef) -> str:
    """Return the parameters in the form of the __text_signature__ of an op."""
    at, texts = node.args, []
    positional = [*at.posonlyargs, *at.args]
    defaults = [None] * (len(positional) - len(at.defaults)) + list(at.defaults)
    for argument, default in zip(positional, defaults, strict=True):
        texts.append(argument.arg if default is None else f"{argument.arg}={ast.literal_eval(default)!r}")
        if at.posonlyargs and argument is at.posonlyargs[-1]:
            texts.append("/")
    texts += ["*"] if at.kwonlyargs else []
    for argument, default in zip(at.kwonlyargs, at.kw_defaults, strict=True):
        texts.append(argument.arg if default is None else f"{argument.arg}={ast.literal_eval(default)!r}")
    return f"({', '.join(texts)})"


def test_the_stub_declares_exactly_the_members_of_the_module() -> None:
    public = {name for name in dir(fs._core) if not name.startswith("__")} | {"__all__"}
    stubbed = {n for n in names_in(STUB.body) if not n.startswith("_") or n == "__all__" or n in FUNCTIONS}
    assert stubbed == public


def test_the_generated_parts_of_the_stub_are_up_to_date() -> None:
    tool = runpy.run_path(str(ROOT / "tools" / "make_stub.py"))
    assert tool["generated"](TEXT) == TEXT, "run python tools/make_stub.py"


def test_the_stub_and_the_module_have_the_same_exports() -> None:
    exported = next(node.value for node in STUB.body if isinstance(node, ast.Assign))  # the only assignment is __all__
    assert set(ast.literal_eval(exported)) == set(fs._core.__all__)
    assert len(set(fs._core.__all__)) == len(fs._core.__all__) and all(hasattr(fs, name) for name in fs._core.__all__)


@pytest.mark.parametrize("name", fs._core.ops)
def test_ops_have_the_arguments_of_the_stub(name: str) -> None:
    op = getattr(fs._core, name)
    assert parameters_in(FUNCTIONS[name]) == op.__text_signature__
    assert isinstance(op, fs.Op) and op.__name__ == name and op.__doc__.startswith(f"{name}(")


def test_inspect_and_help_show_the_arguments_of_an_op() -> None:
    for op in (fs.add, fs.layer_norm, fs.sin_, fs.full):
        assert str(inspect.signature(op)) == op.__text_signature__
    said = pydoc.render_doc(fs.add)
    assert "add(a, b, *, out=None)" in said and "FLOPs: 1 per output element" in said


def test_an_op_pickles_by_name_and_copies_to_itself() -> None:
    for op in (fs.add, fs.sin_, fs.layer_norm):
        assert pickle.loads(pickle.dumps(op)) is op and copy.copy(op) is op and copy.deepcopy(op) is op


@pytest.mark.parametrize("name", sorted(set(FUNCTIONS) - set(fs._core.ops)))
def test_functions_have_the_arguments_of_the_stub(name: str) -> None:
    function = getattr(fs._core, name)
    try:
        signature = inspect.signature(function)
    except ValueError:
        pytest.skip("the module gives no signature")
    if str(signature) == "(object, /)":  # Python 3.14 writes it for a function of one argument without a signature
        assert len(signature.parameters) == parameters_in(FUNCTIONS[name]).count(",")
    else:
        assert parameters_in(FUNCTIONS[name]) == str(signature)


@pytest.mark.parametrize("name", CLASSES)
def test_classes_have_the_members_of_the_stub(name: str) -> None:
    if name.startswith("_"):
        pytest.skip("a protocol of the stub's own")
    stubbed = names_in(CLASSES[name].body)
    thing = getattr(fs._core, name)
    actual = set(dir(thing)) - (STRUCT_SEQUENCE if issubclass(thing, tuple) else set())
    assert stubbed - actual <= {"__name__", "__qualname__", "__buffer__"}, "the stub declares missing members"
    missing = {
        member
        for member in actual - INHERITED - stubbed
        if member not in ("__vectorcalloffset__", "__release_buffer__", "__signature__")
    }
    assert missing == set(), "not in the stub"


@pytest.mark.parametrize("name", [name for name in CLASSES if not name.startswith("_")])
def test_classes_are_final_if_the_stub_declares_it(name: str) -> None:
    final = any(isinstance(d, ast.Name) and d.id == "final" for d in CLASSES[name].decorator_list)
    try:
        type("Derived", (getattr(fs._core, name),), {})
    except TypeError:
        assert final
    else:
        assert not final
