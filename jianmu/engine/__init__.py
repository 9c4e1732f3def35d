"""The engine: state, trees and the runs that drive them; it knows nothing of language models, messages or tools.

What users need of it is in `jianmu`, `jianmu.engine.state`, `jianmu.engine.node`, `jianmu.engine.ticker` and
`jianmu.engine.interaction`.
"""

__all__: list[str] = []
