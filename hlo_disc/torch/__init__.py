"""PyTorch: `torch.compile(model, backend="hlo_disc")`.

```python
compiled = torch.compile(model, backend="hlo_disc", dynamic=True)
compiled(x)                      # one compilation for all shapes
print(hlo_disc.torch.explain())  # what was compiled, and what stayed PyTorch's
```
"""

from hlo_disc.torch.backend import backend
from hlo_disc.torch.exported import compile
from hlo_disc.torch.jagged import jagged_attention
from hlo_disc.torch.library import op
from hlo_disc.torch.reports import Compilation, compilations, explain

__all__ = ["Compilation", "backend", "compilations", "compile", "explain", "jagged_attention", "op"]
