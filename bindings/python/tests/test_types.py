"""Tests that the package declares its types."""

import ast
import inspect
import pathlib
import unittest

import foldwire
from foldwire import _communicator, _native

SOURCES = pathlib.Path(__file__).parent.parent / "python" / "foldwire"


def stubs(name):
    """Returns the methods of each class in a .pyi file, with their parameter names."""
    tree = ast.parse((SOURCES / f"{name}.pyi").read_text())
    return {
        one.name: {
            method.name: [arg.arg for arg in method.args.args]
            for method in one.body if isinstance(method, ast.FunctionDef)
        }
        for one in tree.body if isinstance(one, ast.ClassDef)
    }


class Types(unittest.TestCase):
    def test_public_methods_name_the_types_of_all_parameters(self):
        classes = [*_communicator.Communicator.__mro__[:-1], _communicator.Request]
        for there in classes:
            for name, member in vars(there).items():
                member = getattr(member, "fget", None) or getattr(member, "__func__", member)
                if name.startswith("_") or not callable(member):
                    continue
                signature = inspect.signature(member)
                untyped = [parameter.name for parameter in signature.parameters.values()
                           if parameter.annotation is inspect.Parameter.empty]
                self.assertEqual(untyped, ["self"] * ("self" in signature.parameters), name)
                self.assertIsNot(signature.return_annotation, inspect.Signature.empty, name)

    def test_native_methods_are_declared(self):
        for name, methods in stubs("_native").items():
            there = getattr(_native, name)
            for method in methods:
                self.assertTrue(hasattr(there, method), f"{name}.{method}")
            for method in vars(there):
                if not method.startswith("__") and inspect.isroutine(getattr(there, method)):
                    self.assertIn(method, methods)

    def test_all_that_is_public_is_documented(self):
        for name in foldwire.__all__:
            self.assertTrue(inspect.getdoc(getattr(foldwire, name)), name)
        for name in dir(foldwire.Communicator):
            if not name.startswith("_"):
                self.assertTrue(getattr(foldwire.Communicator, name).__doc__, name)


if __name__ == "__main__":
    unittest.main()
