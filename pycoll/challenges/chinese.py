"""Chinese for the playground on Chinese pages: the tasks of challenges, and the errors of proofs.

Errors are made in English.  `translated` finds the templates that they are made of, in `ERRORS`, and puts their Chinese
in place; what no template fits stays English, such as the errors of Python itself.
"""

from __future__ import annotations

import re

TASKS = {
    "chain": "向量从根进程出发，沿着一条链传递。但各进程还没有收到向量，就要把它发送出去。",
    "forward": "在环上的每一轮中，进程应当转发上一轮收到的块。",
    "everyone_waits": "所有进程都先发送，没有进程接收，而发送可能要等到对方接收才能完成。哪些动作应当放在同一轮中？",
    "release": "0 号进程收到其他所有进程的消息。但其他进程发送消息之后，就可以离开 barrier 吗？",
    "any_root": "根进程为 0 号进程时，这个 gather 是正确的。请修改它，使任何进程都可以作为根进程。",
    "rank_order": "运算可能不满足交换律，所以必须按进程序号的顺序归约。代码中有一个词写错了。",
    "counted_twice": "每个进程都把自己的数据发给右边的进程，并加上左边传来的数据。第二轮发送的是什么？"
    "一种改法：让各向量沿一条链累加，再把总和传回来。",
    "logarithm": "请在 lg(p) 轮之内完成 broadcast：已经有向量的进程也可以发送，不必都由根进程发送。",
    "one_at_a_time": "同时发送所有消息可能造成网络拥塞。请使每个进程在每一轮中至多发送一条消息，总共不超过 p 轮。",
    "blank": "请写出一个 reduce-scatter，任何进程的发送量都不超过向量的 (p-1)/p。r 号进程需要总和的第 r 块。",
    "half_the_bytes": "最后一个进程发送 p-1 个向量，而每个进程只需发送向量的 2(p-1)/p。"
    "向量按进程数分块：第 0 块到第 p-1 块。",
    "five_ranks": "p 是 2 的幂时，递归倍增是正确的。请修改它，使它对任意 p 都正确，并且不超过 lg(p) + 2 轮。",
}

# {n}: a number; {w}: a word; {s}: the ending of a plural, or nothing; {}: text, which is translated in turn
FIELDS = {"{n}": r"(\d+)", "{w}": r"(\S+?)", "{s}": "s?", "{}": "(.+?)"}
ERRORS = {
    # what is proved
    "{w} on {n} rank{s}: {}": "{0}（{1} 个进程）：{2}",
    "{w} on {n} rank{s}, {}: {}": "{0}（{1} 个进程，{2}）：{3}",
    "root {n}, {}": "根为 {0} 号进程，{1}",
    "root {n}": "根为 {0} 号进程",
    "{n} segment{s}, {}": "分为 {0} 段，{1}",
    "{n} segment{s}": "分为 {0} 段",
    "hosts {}": "各进程所在的主机依次为 {0}",
    # the text and its goal
    "line {n}: {}": "第 {0} 行：{1}",
    "ValueError: {}": "{0}",
    "the text defines {n} algorithms: write one generator below @algorithm()": (
        "代码中定义了 {0} 个算法：请在 @algorithm() 下面写一个生成器"
    ),
    "It is right, but {}.": "算法正确，但{0}。",
    "it has {n} rounds on {n} ranks; {} is {}": "{1} 个进程需要 {0} 轮，而 {2} 为 {3}",
    "it has {n} rounds on {n} ranks": "{1} 个进程需要 {0} 轮",
    "a rank sends {} Z on {n} ranks; {} is {} Z": "进程数为 {1} 时，有进程发送 {0} Z，而 {2} 为 {3} Z",
    "rank {n} of {n} sends {n} messages in one round": "进程数为 {1} 时，{0} 号进程在一轮中发送 {2} 条消息",
    # the form of rounds
    "rank {n}: the schedule is not a generator, because it has no yield: it returns {}": (
        "{0} 号进程：函数中没有 yield，因此不是生成器；它返回 {1}"
    ),
    "rank {n} has more than {n} rounds: does its schedule ever end?": "{0} 号进程超过了 {1} 轮：它会结束吗？",
    "yields a {w} instead of a tuple of moves: write `yield ({w}(...),)`, with a comma": (
        "yield 的是单个 {0}，而不是动作的元组：请写成 `yield ({1}(...),)`，注意逗号"
    ),
    "yields {}, which is not a tuple of moves": "yield 的是 {0}，它不是动作的元组",
    "{} has order={}, which is neither BEFORE nor AFTER": "{0} 中的 order={1} 既不是 BEFORE，也不是 AFTER",
    "{} names rank {}, but the ranks are 0 to {n}": "{0} 中的进程序号 {1} 不在 0 到 {2} 的范围内",
    "{} has blocks={}, which is not a sequence of blocks": "{0} 中的 blocks={1} 不是块的序列",
    "{} has block {}, which is not hashable": "{0} 中的块 {1} 不可哈希",
    "a round has both local moves and messages: {}": "一轮中既有本地动作，又有消息：{0}",
    "block {} is written by moves with different blocks: {}": "写入块 {0} 的几个动作列出的块不同：{1}",
    # the order of combination, which says "the result combines", and so comes before other results
    "rank {n}, block {}: the result combines the contributions in the order {}, not in rank order; if it is for "
    "commutative operations only, register it with ordered=False": (
        "{0} 号进程，块 {1}：结果按 {2} 的顺序归约，而不是按进程序号的顺序；"
        "如果算法只用于满足交换律的运算，请在注册时写上 ordered=False"
    ),
    "block {}: rank {n} does not end with the same bits as rank {n}: rank {n} combines {}, rank {n} combines {}; all "
    "ranks must combine in the same order, because floating-point addition is not associative": (
        "块 {0}：{1} 号进程的结果与 {2} 号进程不是每一位都相同：{3} 号进程计算 {4}，{5} 号进程计算 {6}；"
        "浮点加法不满足结合律，因此所有进程必须按相同的顺序归约"
    ),
    # results
    "rank {n} leaves the barrier without having heard from {}": "{0} 号进程离开 barrier 时，尚未得到 {1}的消息",
    "rank {n} ends without block {}": "{0} 号进程结束时没有块 {1}",
    "rank {n} ends with block {} as block {}": "{0} 号进程结束时，块 {2} 中存放的是块 {1}",
    "rank {n}, block {}: the result {}": "{0} 号进程，块 {1}：结果{2}",
    "{}, first in round {n} of rank {n}": "{0}，最早见于 {2} 号进程的第 {1} 轮",
    "lacks the contribution{s} of {}": "缺少 {0}的数据",
    "combines the contribution{s} of {} more than once": "重复计入了 {0}的数据",
    "should not include the contribution{s} of {}": "不应包含 {0}的数据",
    # ranks that wait
    "... and {n} more ranks wait": "……另外还有 {0} 个进程在等待",
    "deadlock: {}": "死锁：{0}",
    "a message that no one {w}: rank {n} waits for rank {n}, which has finished": (
        "有一条消息无人{0}：{1} 号进程等待 {2} 号进程，而后者已经结束"
    ),
    "receives": "接收",
    "sends": "发送",
    "ranks {n} and {n} disagree about the messages between them": "{0} 号和 {1} 号进程列出的彼此之间的消息不一致",
    "rank {n}, round {n}: {}": "{0} 号进程第 {1} 轮：{2}",
    "rank {n} waits for rank {n}": "{0} 号进程等待 {1} 号进程",
    "waits to send {} to rank {n}, {}": "等待向 {1} 号进程发送{0}，{2}",
    "waits to receive {} from rank {n}, {}": "等待从 {1} 号进程接收{0}，{2}",
    "which has finished after {n} round{s}": "而后者在 {0} 轮之后已经结束",
    "which has no rounds": "而后者一轮也没有",
    "which in its round {n} receives {} from rank {n}": "而后者在第 {0} 轮从 {2} 号进程接收{1}",
    "which in its round {n} sends {} to rank {n}": "而后者在第 {0} 轮向 {2} 号进程发送{1}",
    "which is in its round {n}: it {}": "而后者正处于第 {0} 轮：{1}",
    "sends {} to rank {n}": "向 {1} 号进程发送{0}",
    "receives {} from rank {n}": "从 {1} 号进程接收{0}",
    # blocks
    "sends block {}, which it does not hold; {}": "要发送块 {0}，但它没有这个块；{1}",
    "copies block {}, which it does not hold; {}": "要复制块 {0}，但它没有这个块；{1}",
    "combines block {}, which it does not hold; {}": "要归约块 {0}，但它没有这个块；{1}",
    "combines into block {}, which it does not hold; {}": "要归约到块 {0} 中，但它没有这个块；{1}",
    "combines block {} with block {}, into block {}": "把不同的块 {0} 和块 {1} 归约到块 {2} 中",
    "it holds none": "它没有任何块",
    "it holds {n} others": "它持有 {0} 个其他的块",
    "it holds {}": "它持有块 {0}",
    "blocks []": "空消息",
    "blocks {}": "块 {0}",
    "block {}": "块 {0}",
    "{n} messages ({})": "{0} 条消息（{1}）",
    # names of ranks
    "ranks {} and {n} more": "{0} 号等进程（另有 {1} 个）",
    "ranks {}": "{0} 号进程",
    "rank {n}": "{0} 号进程",
    # topologies
    "topology={} is not one of: {}": "topology={0} 不属于以下任何一种：{1}",
    "topology={}: sizes and the taper are at least 1": "topology={0}：各边长与收敛比不能小于 1",
    "topology={} has hosts 0 to {n}, but a rank is on {n}": (
        "topology={0} 只有 0 到 {1} 号主机，但有进程在 {2} 号主机上"
    ),
}
# how items of a list ``a, b and c`` begin that are translated one by one
ITEMS = r"rank \d+ waits for", "(?:sends|receives) (?!block [^,]*, which)", "(?:lacks|combines|should not) ", "blocks? "


def translated(text: str) -> str:
    """Return an error in Chinese; each line is translated by itself."""
    lines = (re.fullmatch(r"(\s*)(.*)", line) for line in text.split("\n"))
    return "\n".join(line[1] + _spaced(_chinese(line[2])) for line in lines if line)


def _chinese(text: str) -> str:
    for begin in ITEMS:
        items = re.split(f"(?:, | and )(?={begin})", text) if re.match(begin, text) else []
        if len(items) > 1:
            return "，".join(map(_chinese, items))
    for pattern, chinese in _PATTERNS:
        if found := pattern.fullmatch(text):
            return chinese.format(*map(_chinese, found.groups()))
    return "、".join(re.split(", | and ", text)) if re.fullmatch(r"(\d+, )*\d+ and \d+", text) else text


def _pattern(template: str) -> re.Pattern[str]:
    parts = re.split(r"(\{\w?\})", template)
    return re.compile("".join(FIELDS.get(part) or re.escape(part) for part in parts), re.DOTALL)


_PATTERNS = [(_pattern(english), chinese) for english, chinese in ERRORS.items()]


def _spaced(text: str) -> str:
    """Put spaces between Chinese characters and others."""
    text = re.sub(r"(?<=[0-9A-Za-z\])])(?=[\u4e00-\u9fff])", " ", text)
    return re.sub(r"(?<=[\u4e00-\u9fff])(?=[0-9A-Za-z\[(])", " ", text)
