"""Branch and bound over the nonlinear parameters of a regression, with a proven lower bound.

`separate` brings a regression into the form of `separable`; `bound` encloses columns on
cells and bounds the sum of squares on a box, `search` branches. Taylor models (`taylor`) and
expressions on them (`separable`) enclose; a new function is one `Univariate` and one rule in
`separable.TaylorGraph`.
"""
