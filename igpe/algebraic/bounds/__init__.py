"""Branch and bound over the nonlinear parameters of a regression, with a proven lower bound.

`separate` brings a regression into the form of `separable`; `columns` encloses columns on cells,
`bound` bounds the sum of squares on a box, `search` branches. Uses `taylor`.
"""
