# %%
# --8<-- [start:setup]
import torch
import matplotlib.pyplot as plt
print(torch.arange(3))
plt.plot([1,2])
# --8<-- [end:setup]
