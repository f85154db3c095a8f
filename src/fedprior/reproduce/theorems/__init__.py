"""The paper's two theorems in numbers, on problems whose answer is known."""
