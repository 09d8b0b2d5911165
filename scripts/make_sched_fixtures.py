"""Writes crates/sched/tests/fixtures/reference.txt: every plan the reference scheduler makes in fixed scenarios.

Usage (from the repository root): python3 scripts/make_sched_fixtures.py [folder of ref.py]
The folder defaults to ../shared/scheduling/reference. Python 3.11, standard library only.

Exactness: every coefficient, share and prompt part is a dyadic fraction, so the reference's floats are exact and integer
arithmetic must agree with them to the last token. Two things are laid down here because the written design says more than
the reference: prompts and decoders are listed in order of arrival (the reference lists them in order of admission), also in a plan, and a
plan with nothing to run is idle, never a wait.

Format, line by line:
  scenario <name> <mode> <slots> <T_stall> <T_idle> <q_min> <oldest permille> <prefill share permille or -> <w> <tau>
  cost <a_dec> <a_pf> <a_mix> <b> <e> <c> <d>          in 1/1048576 us
  request <id> <arrival us> <prompt> <answer>
  plan [<count> x] <decode ids, comma separated, or -> <id:tokens of each prompt range, or -> | wait
  done <id> <time to first token us> <end us>
"""
import os
import random
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, sys.argv[1] if len(sys.argv) > 1 else os.path.join(ROOT, '..', 'shared', 'scheduling', 'reference'))
from ref import CM, Cfg, Ours, S, sim

MS = 1000
UNIT = 1 << 20


class Recorder:
    """The reference's policy, in order of arrival, with its plans written down."""

    def __init__(self, cfg, cost):
        self.inner = Ours(cfg, cost)
        self.c = cfg
        self.plans = []

    def plan(self, now, prompts, ready, active):
        if not prompts and not ready:
            return [], []
        by_arrival = lambda x: (x.arr, x.id)
        plan = self.inner.plan(now, sorted(prompts, key=by_arrival), sorted(ready, key=by_arrival), active)
        if plan == 'wait':
            self.plans.append('wait')
            return plan
        decode, ranges = plan
        if decode or ranges:
            ids = ','.join(str(x.id) for x in decode) or '-'
            parts = ','.join(f'{x.id}:{q}' for x, q in sorted(ranges, key=lambda part: by_arrival(part[0]))) or '-'
            self.plans.append(f'{ids} {parts}')
        return plan


def permille(x):
    return '-' if x is None else round(1000 * x)


def exact(x):
    assert x * UNIT == int(x * UNIT), x
    return int(x * UNIT)


def record(out, name, cost, cfg, requests):
    policy = Recorder(cfg, cost)
    sim(policy, requests, cfg, cost)
    mode = 'mix' if cost.can_mix else 'hand-off'
    out.append(f'scenario {name} {mode} {cfg.slots} {cfg.T_stall} {cfg.T_idle} {cfg.q_min} {permille(cfg.oldest)} '
               f'{permille(cfg.share)} {cfg.w} {cfg.tau}')
    a_mix = cost.a_pf if cost.a_mix is None else cost.a_mix
    out.append('cost ' + ' '.join(str(exact(x)) for x in (cost.a_dec, cost.a_pf, a_mix, cost.b, cost.e, cost.c, cost.d)))
    out.extend(f'request {r.id} {r.arr} {r.plen} {r.olen}' for r in requests)
    i = 0
    while i < len(policy.plans):
        n = 1
        while i + n < len(policy.plans) and policy.plans[i + n] == policy.plans[i]:
            n += 1
        out.append('plan ' + (f'{n} x ' if n > 1 else '') + policy.plans[i])
        i += n
    out.extend(f'done {r.id} {r.ttft} {r.end}' for r in requests)


def config(**values):
    return Cfg(q_max=10**9, adm='mix', **values)


def shapes(out):
    hand_off = CM(a_dec=0, a_pf=464 * MS, b=1620, d=40 * MS, can_mix=False)
    dense = CM(a_dec=8 * MS, a_pf=8 * MS, a_mix=9 * MS, b=110, e=3 / 1024, c=1 / 16, d=20)
    laptop = CM(a_dec=3700, a_pf=4000, a_mix=4500, b=430, e=1 / 256, c=3 / 64, d=150)
    for stall, share in ((700, .5), (1500, .5), (1500, .75), (700, None)):
        requests = [S(0, 0, 0, 64, 700), S(1, 0, 3_000_000, 5361, 8)]
        cfg = config(slots=3, T_stall=stall * MS, T_idle=4000 * MS, q_min=128, share=share)
        record(out, f'A-{stall}-{permille(share)}', hand_off, cfg, requests)
    for share, tau, w in ((None, 0, 0), (.5, 0, 0), (None, 3 * MS, 0), (None, 3 * MS, 4 * MS)):
        requests = [S(i, 0, 0, 500, 600) for i in range(4)]
        requests += [S(10, 1, 2_000_000, 30_000, 4), S(11, 2, 2_500_000, 200, 50), S(12, 2, 4_000_000, 200, 50)]
        cfg = config(slots=16, T_stall=60 * MS, T_idle=500 * MS, q_min=32, share=share, tau=tau, w=w)
        record(out, f'B-{permille(share)}-{tau}-{w}', dense, cfg, requests)
    for stall, share in ((200, None), (50, None), (200, .5)):
        requests = [S(0, 0, 0, 200, 400), S(1, 0, 1_000_000, 6000, 20)]
        cfg = config(slots=4, T_stall=stall * MS, T_idle=1000 * MS, q_min=32, share=share)
        record(out, f'C-{stall}-{permille(share)}', laptop, cfg, requests)


def small(out, seed):
    rng = random.Random(seed)
    cost = CM(a_dec=rng.randrange(0, 40), a_pf=rng.randrange(0, 60), a_mix=rng.randrange(0, 60), b=rng.randrange(1, 80) / 8,
              e=rng.randrange(0, 16) / 1024, c=rng.randrange(0, 16) / 128, d=rng.randrange(0, 40) / 8,
              can_mix=rng.random() < .6)
    tau = rng.choice((0, 0, 5, 30))
    cfg = config(slots=rng.randrange(1, 7), T_stall=rng.randrange(20, 400), T_idle=rng.randrange(100, 900),
                 q_min=rng.randrange(1, 20), share=rng.choice((None, .5, .75)), oldest=rng.choice((0, .25, .5, .75)),
                 tau=tau, w=rng.choice((0, 10)) if tau else 0)
    requests = [S(i, 0, rng.randrange(0, 1500), rng.choice((rng.randrange(1, 20), rng.randrange(1, 300))), rng.randrange(1, 12))
                for i in range(rng.randrange(1, 14))]
    requests.sort(key=lambda r: r.arr)
    for i, r in enumerate(requests):
        r.id = i
    record(out, f'small-{seed}', cost, cfg, requests)


def main():
    out = []
    shapes(out)
    for seed in range(120):
        small(out, seed)
    path = os.path.join(ROOT, 'crates', 'sched', 'tests', 'fixtures', 'reference.txt')
    with open(path, 'w') as file:
        file.write('\n'.join(out) + '\n')


main()
