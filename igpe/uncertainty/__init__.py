"""How sure an estimate is: profiles, bootstrap, regions, posterior samples, predictions.

Uses `dynamics`, `results`. What is computed is a data class of plain numbers; its plots are in
`results/plots/`.
"""
