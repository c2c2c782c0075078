"""Tests that the .pyi files match the package."""

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
    def test_methods_have_the_parameters_that_are_declared(self):
        for name, methods in stubs("_communicator").items():
            there = getattr(_communicator, name)
            public = {n for n, m in vars(there).items() if not n.startswith("_")
                      and (callable(m) or isinstance(m, (property, staticmethod)))}
            self.assertEqual(public, {n for n in methods if not n.startswith("_")})
            for method in public:
                member = inspect.getattr_static(there, method)
                if isinstance(member, property):
                    continue
                member = getattr(member, "__func__", member)
                parameters = list(inspect.signature(member).parameters)
                self.assertEqual(parameters, methods[method], method)

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
        for name in stubs("_communicator")["Communicator"]:
            if not name.startswith("_"):
                self.assertTrue(getattr(foldwire.Communicator, name).__doc__, name)


if __name__ == "__main__":
    unittest.main()
