"""Tests that run the examples unchanged."""

import json
import os
import subprocess
import sys
import unittest

from test_processes import by_hand, environment

EXAMPLES = os.path.join(os.path.dirname(__file__), "..", "examples")


def start(name, *arguments, **variables):
    return subprocess.Popen([sys.executable, os.path.join(EXAMPLES, name), *arguments],
                            env=environment(OPENBLAS_NUM_THREADS="1", **variables),
                            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


class Examples(unittest.TestCase):
    def rows(self, process):
        said, errors = process.communicate(timeout=120)
        self.assertEqual(process.returncode, 0, errors)
        return [json.loads(line) for line in said.splitlines()]

    def check(self, rows):
        """Training with a bound sends fewer bytes than exact training, and learns, too."""
        self.assertEqual([row["bound"] for row in rows], ["exact", "rel:0.02", "rel:0.2"])
        self.assertAlmostEqual(rows[0]["ratio"], 1, delta=0.1)
        self.assertGreater(rows[1]["ratio"], 2)
        for row in rows:
            self.assertLess(row["curve"][-1][1], row["curve"][0][1])

    def test_a_sum(self):
        said, errors = start("sum.py").communicate(timeout=120)
        self.assertIn("rank 0 of 4: 1.5", said, errors)

    def test_training_on_ranks_that_are_threads(self):
        self.check(self.rows(start("train.py", "--steps", "60", "--link", "0", "--json")))

    def test_training_on_ranks_that_are_processes(self):
        variables = by_hand(2)
        ranks = [start("train.py", "--steps", "60", "--join", "--json", **variables(rank))
                 for rank in range(2)]
        rows = [self.rows(rank) for rank in ranks]
        self.check(rows[0])
        self.assertEqual(rows[1], [])


if __name__ == "__main__":
    unittest.main()
