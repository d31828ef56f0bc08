"""Writes the golden files beside this script: what PyTorch computes for small models, in float64.

    python make_golden.py        (made with PyTorch 2.13, NumPy 2.4 and safetensors 0.8)

The tests read the files and never need Python. Weights are float32 numbers, so a float32 model starts from the same
ones; everything computed from them is float64.

gpt*.safetensors: a decoder-only model shaped and named as nanoGPT's.
  weight.<name>         the model
  ids, targets          (steps, B, T), a batch for each training step; target -1 is ignored
  logits, loss          of batch 0
  grad.<name>           of batch 0's loss
  short.ids, short.logits   a batch of fewer tokens than the context
  losses, norms         of every step's batch before its update, and the gradient's global norm before clipping, with
                        AdamW; sgd.losses, sgd.norms: with SGD and momentum
cross_attention.safetensors: attention of x to memory, by cases (see CASES).
  weight.<name>, x, memory, lengths, cotangent.x, cotangent.memory
  <case>.output, <case>.grad.<name or x or memory>   of the inner product of the output and the query's cotangent
"""

import copy
import math
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import nn
from torch.nn import functional as F

FOLDER = Path(__file__).parent
STEPS, BATCH, CONTEXT, VOCABULARY = 10, 3, 8, 11
LAYERS, HEADS, WIDTH = 2, 2, 16
OPTIMIZER = dict(lr=0.01, betas=(0.9, 0.99), eps=1e-8)
SGD = dict(lr=0.1, momentum=0.8)
WEIGHT_DECAY, CLIP, SGD_CLIP = 0.1, 1.0, 2.0


def attend(q, k, v, heads, mask):
    """softmax(q kᵀ / sqrt(D)) v, every head apart; mask (…, Tq, Tk) is true where a key may be seen."""

    def split(x):
        return x.unflatten(-1, (heads, -1)).transpose(1, 2)

    q, k, v = split(q), split(k), split(v)
    scores = q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1])
    weights = scores.masked_fill(~mask, -math.inf).softmax(-1)
    return (weights @ v).transpose(1, 2).flatten(2)


def lower_triangle(queries, keys):
    return torch.ones(queries, keys, dtype=torch.bool).tril()


class SelfAttention(nn.Module):
    def __init__(self, bias):
        super().__init__()
        self.c_attn = nn.Linear(WIDTH, 3 * WIDTH, bias=bias)
        self.c_proj = nn.Linear(WIDTH, WIDTH, bias=bias)

    def forward(self, x):
        q, k, v = self.c_attn(x).chunk(3, -1)
        return self.c_proj(attend(q, k, v, HEADS, lower_triangle(x.shape[1], x.shape[1])))


class Mlp(nn.Module):
    def __init__(self, bias, gelu):
        super().__init__()
        self.c_fc = nn.Linear(WIDTH, 4 * WIDTH, bias=bias)
        self.c_proj = nn.Linear(4 * WIDTH, WIDTH, bias=bias)
        self.gelu = gelu

    def forward(self, x):
        return self.c_proj(F.gelu(self.c_fc(x), approximate=self.gelu))


class Block(nn.Module):
    def __init__(self, bias, gelu):
        super().__init__()
        self.ln_1 = nn.LayerNorm(WIDTH, bias=bias)
        self.attn = SelfAttention(bias)
        self.ln_2 = nn.LayerNorm(WIDTH, bias=bias)
        self.mlp = Mlp(bias, gelu)

    def forward(self, x):
        x = x + self.attn(self.ln_1(x))
        return x + self.mlp(self.ln_2(x))


class Gpt(nn.Module):
    def __init__(self, bias, gelu):
        super().__init__()
        self.transformer = nn.ModuleDict(
            {
                "wte": nn.Embedding(VOCABULARY, WIDTH),
                "wpe": nn.Embedding(CONTEXT, WIDTH),
                "h": nn.ModuleList(Block(bias, gelu) for _ in range(LAYERS)),
                "ln_f": nn.LayerNorm(WIDTH, bias=bias),
            }
        )

    def forward(self, ids):
        part = self.transformer
        x = part["wte"](ids) + part["wpe"].weight[: ids.shape[1]]
        for block in part["h"]:
            x = block(x)
        return F.linear(part["ln_f"](x), part["wte"].weight)

    def loss(self, ids, targets):
        return F.cross_entropy(self(ids).flatten(0, 1), targets.flatten(), ignore_index=-1)


def fill(module, deviation):
    """Every parameter at random, biases and norms too, so that none is at a value that hides a mistake."""
    module.double()
    with torch.no_grad():
        for name, parameter in module.named_parameters():
            centre = 1.0 if parameter.ndim == 1 and name.endswith("weight") else 0.0
            noise = torch.randn(parameter.shape, dtype=torch.float64) * deviation
            parameter.copy_((centre + noise).float())


def weights_of(module):
    return {f"weight.{name}": p.detach().float().clone() for name, p in module.named_parameters()}


def gradients_of(module, prefix=""):
    return {f"{prefix}grad.{name}": p.grad.clone() for name, p in module.named_parameters()}


def train(model, ids, targets, make_optimizer, clip):
    matrices = [p for p in model.parameters() if p.ndim >= 2]
    others = [p for p in model.parameters() if p.ndim < 2]
    groups = [dict(params=matrices, weight_decay=WEIGHT_DECAY), dict(params=others, weight_decay=0.0)]
    optimizer = make_optimizer(groups)
    losses, norms = [], []
    for step in range(STEPS):
        optimizer.zero_grad()
        loss = model.loss(ids[step], targets[step])
        loss.backward()
        norms.append(nn.utils.clip_grad_norm_(model.parameters(), clip))
        losses.append(loss.detach())
        optimizer.step()
    return torch.stack(losses), torch.stack(norms)


def make_gpt(file, seed, bias, gelu):
    torch.manual_seed(seed)
    model = Gpt(bias, gelu)
    fill(model, 0.2)
    ids = torch.randint(VOCABULARY, (STEPS, BATCH, CONTEXT))
    targets = torch.randint(VOCABULARY, (STEPS, BATCH, CONTEXT))
    targets[0, 1, 3] = -1
    targets[4, 0, :] = -1
    short = torch.randint(VOCABULARY, (2, CONTEXT - 3))
    golden = weights_of(model)
    loss = model.loss(ids[0], targets[0])
    loss.backward()
    golden |= gradients_of(model)
    golden |= {"ids": ids.int(), "targets": targets.int(), "short.ids": short.int()}
    golden |= {"logits": model(ids[0]).detach(), "loss": loss.detach(), "short.logits": model(short).detach()}
    for prefix, make, clip in (
        ("", lambda groups: torch.optim.AdamW(groups, **OPTIMIZER), CLIP),
        ("sgd.", lambda groups: torch.optim.SGD(groups, **SGD), SGD_CLIP),
    ):
        losses, norms = train(copy.deepcopy(model), ids, targets, make, clip)
        # Some steps are clipped and some are not, else the files could not tell.
        assert norms.min() < clip < norms.max(), norms
        golden |= {f"{prefix}losses": losses, f"{prefix}norms": norms}
    save_file(golden, FOLDER / file)


class CrossAttention(nn.Module):
    def __init__(self):
        super().__init__()
        for name in ("q_proj", "k_proj", "v_proj", "c_proj"):
            setattr(self, name, nn.Linear(12, 12))

    def forward(self, x, memory, mask):
        return self.c_proj(attend(self.q_proj(x), self.k_proj(memory), self.v_proj(memory), 3, mask))


# The causal mask is the lower triangle counted from the first query and key, whatever the lengths; swapped, x and
# memory change places, so that there are more queries than keys.
CASES = {
    "full": dict(causal=False, lengths=False, swapped=False),
    "causal": dict(causal=True, lengths=False, swapped=False),
    "lengths": dict(causal=False, lengths=True, swapped=False),
    "causal_lengths": dict(causal=True, lengths=True, swapped=False),
    "swapped": dict(causal=False, lengths=False, swapped=True),
    "swapped_causal": dict(causal=True, lengths=False, swapped=True),
}


def make_cross_attention(file, seed):
    torch.manual_seed(seed)
    model = CrossAttention()
    fill(model, 0.4)
    lengths = torch.tensor([3, 7])
    x, memory = (torch.randn(2, time, 12).double().requires_grad_() for time in (5, 7))
    towards_x, towards_memory = torch.randn(2, 5, 12).double(), torch.randn(2, 7, 12).double()
    golden = weights_of(model)
    golden |= {"x": x.detach().float().clone(), "memory": memory.detach().float().clone(), "lengths": lengths.int()}
    golden |= {"cotangent.x": towards_x.float(), "cotangent.memory": towards_memory.float()}
    for case, how in CASES.items():
        for tensor in (x, memory, *model.parameters()):
            tensor.grad = None
        queries, keys = (memory, x) if how["swapped"] else (x, memory)
        mask = torch.ones(queries.shape[1], keys.shape[1], dtype=torch.bool)
        if how["causal"]:
            mask = lower_triangle(*mask.shape)
        if how["lengths"]:
            mask = mask & (torch.arange(keys.shape[1]) < lengths[:, None, None, None])
        output = model(queries, keys, mask)
        output.backward(towards_memory if how["swapped"] else towards_x)
        golden |= {f"{case}.output": output.detach().clone(), **gradients_of(model, f"{case}.")}
        golden |= {f"{case}.grad.x": x.grad.clone(), f"{case}.grad.memory": memory.grad.clone()}
    save_file(golden, FOLDER / file)


if __name__ == "__main__":
    torch.set_num_threads(1)
    make_gpt("gpt.safetensors", seed=1, bias=False, gelu="none")
    make_gpt("gpt_bias.safetensors", seed=2, bias=True, gelu="none")
    make_gpt("gpt_bias_tanh.safetensors", seed=3, bias=True, gelu="tanh")
    make_cross_attention("cross_attention.safetensors", seed=4)
