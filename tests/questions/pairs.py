"""Answers written for the grader's test: gold, right predictions, wrong predictions.

The expectation is a mathematician's, not the grader's.
"""

TABLE: list[tuple[str, list[str], list[str]]] = [
    # integers and decimals
    ("7", ["7", "7.0", "+7", "x=7", "$7$", "7.", r"\text{7}", "(7)"], ["-7", "77", "7.1", "x"]),
    ("-3", ["-3", "- 3", "n=-3", r"\boldsymbol{-3}"], ["3", "-4"]),
    ("0", ["0", "0.0", "-0"], ["1", "10"]),
    ("1,000", ["1000", "1,000", r"1{,}000", r"1\,000"], ["1", "100", "10000"]),
    ("123456789", ["123,456,789", "123456789"], ["123456788"]),
    ("2.5", ["2.5", "5/2", r"\frac52", r"2\frac{1}{2}", "2.50"], ["2.05", "25", r"\frac25"]),
    (".5", ["0.5", r"\frac12", "1/2"], ["5", "-.5"]),
    ("3.14", ["3.14", "3.140"], [r"\pi", "3.1"]),
    # fractions
    (r"\frac{1}{2}", [r"\dfrac12", r"\tfrac{1}{2}", "0.5", "1/2", "2/4"], ["2", "1/3", "12"]),
    (r"\frac{1}{3}", ["1/3", r"\frac13", "2/6"], [".333333", "0.33", "3"]),
    (r"-\frac{3}{4}", ["-3/4", r"\frac{-3}{4}", r"\frac{3}{-4}", "-0.75"], ["3/4", "-4/3"]),
    (r"\frac{22}{7}", ["22/7", r"3\frac{1}{7}"], ["3.14", r"\pi"]),
    # percent, money, units, degrees
    (r"50\%", [r"50\%", "50%", "50", "0.5", r"\frac12"], ["5", "0.05", r"5\%"]),
    ("25", ["25", r"25\%"], ["0.25"]),
    (r"\$5", ["5", "$5", r"\$5.00"], ["50", r"\$4"]),
    (r"5\text{ cm}", ["5", r"5\text{ cm}", r"5\mathrm{cm}"], ["6", r"6\text{ cm}"]),
    (r"12\text{ square units}", ["12", r"12\text{ square units}"], ["13"]),
    (r"90^\circ", ["90", r"90^{\circ}", r"90^\circ"], ["45", r"45^\circ"]),
    # roots, powers, constants
    (r"2\sqrt{2}", [r"\sqrt{8}", r"2\sqrt2", r"\sqrt8"], [r"\sqrt2", "2.83", "4"]),
    (r"\sqrt{2}", [r"\sqrt 2", r"2^{1/2}", r"\frac{2}{\sqrt2}"], ["1.41421356", "2"]),
    (r"\frac{\sqrt{3}}{2}", [r"\frac{\sqrt3}2", r"\dfrac{3}{2\sqrt{3}}"], [r"\sqrt{3}", "0.866"]),
    ("8", ["2^3", r"\sqrt{64}"], ["2^2", "3^2"]),
    (r"2\pi", [r"2\pi", r"2 \pi", r"\pi\cdot 2"], ["6.28", r"\pi", r"\pi^2"]),
    ("3!", ["6", "3!"], ["3"]),
    ("10^{-3}", ["0.001", r"\frac{1}{1000}"], ["1000", "0.01"]),
    ("2^{10}", ["1024"], ["20", "1000"]),
    # algebra
    ("x^2+2x+1", ["(x+1)^2", "1+2x+x^2"], ["x^2+1", "(x-1)^2"]),
    ("y=2x+1", ["y = 1+2x", "y=2x+1"], ["y=2x-1", "y=x+1"]),
    ("x+y", ["y+x"], ["x-y", "xy"]),
    (r"\frac{a}{b}", ["a/b", r"\dfrac{a}{b}"], [r"\frac{b}{a}", "ab"]),
    (r"(x-2)(x+3)", ["(x+3)(x-2)", "x^2+x-6"], ["(x+2)(x-3)"]),
    (r"\frac{1}{x-1}", [r"-\frac{1}{1-x}"], [r"\frac{1}{x+1}"]),
    # sets, tuples, intervals, several values
    (r"\{1,2\}", [r"\{2,1\}", r"\{1, 2\}"], [r"\{1\}", r"\{1,3\}"]),
    ("1,2", ["2,1", "1, 2"], ["1", "1,3"]),
    ("(1,2)", ["(1,2)", "(1, 2)"], ["(2,1)", "(1,3)"]),
    ("(3,-1,2)", ["(3, -1, 2)", r"\left(3,-1,2\right)"], ["(3,1,2)", "(3,-1)"]),
    (r"(-\infty,3]", [r"(-\infty, 3]", r"x\le 3"], [r"(-\infty,3)", r"[3,\infty)"]),
    ("[0,1)", ["[0, 1)", r"\left[0,1\right)"], ["(0,1)", "[0,1]"]),
    (r"[0,1)\cup(2,3)", [r"(2,3)\cup[0,1)"], [r"[0,1]\cup(2,3)"]),
    (r"1\pm\sqrt{2}", [r"1+\sqrt2, 1-\sqrt2"], [r"1+\sqrt2"]),
    # matrices
    (
        r"\begin{pmatrix}1&2\\3&4\end{pmatrix}",
        [r"\begin{bmatrix}1&2\\3&4\end{bmatrix}", r"\begin{pmatrix} 1 & 2 \\ 3 & 4 \end{pmatrix}"],
        [r"\begin{pmatrix}1&3\\2&4\end{pmatrix}", "10"],
    ),
    (r"\begin{pmatrix}-1\\2\end{pmatrix}", [r"\begin{pmatrix} -1 \\ 2 \end{pmatrix}"], ["(2,-1)"]),
    # words and choices
    (r"\text{Monday}", ["Monday", r"\text{Monday}", r"\textbf{Monday}"], ["Tuesday", "M"]),
    (r"\text{even}", ["even", r"\text{even}", "Even"], ["odd", "E"]),
    (r"\text{(A)}", ["A", "(A)", r"\text{A}"], ["B", "(B)"]),
    (r"\text{ellipse}", ["ellipse"], ["circle", "parabola"]),
    # complex numbers
    ("3+4i", ["4i+3", "3 + 4i"], ["3-4i", "7"]),
    # too large to write out
    ("9^{9^{9}}", ["9^{9^9}"], ["1"]),
]
