"""The words of drawings, of their player and of the playground, in English and in Chinese.

Code, formulas and docstrings are English in both languages.  `pycoll.challenges.chinese` has the errors of proofs.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

LANGUAGES = "en", "zh-CN"
_spoken: ContextVar[str] = ContextVar("language", default="en")

WORDS: dict[str, tuple[str, str]] = {
    # the controls of the player
    "keys": (
        "space: play or pause \u00b7 \u2190 \u2192: step \u00b7 Home, End: first, last \u00b7 l: loop",
        "空格键：播放或暂停 \u00b7 \u2190 \u2192：单步 \u00b7 Home、End：跳到开头、结尾 \u00b7 l：循环播放",
    ),
    "first": ("First (Home)", "开头（Home）"),
    "back": ("Back (\u2190)", "上一步（\u2190）"),
    "play": ("Play or pause (space)", "播放或暂停（空格键）"),
    "next": ("Next (\u2192)", "下一步（\u2192）"),
    "last": ("Last (End)", "结尾（End）"),
    "loop": ("Loop (l)", "循环播放（l）"),
    "frame": ("Frame", "步骤"),
    "speed": ("Speed", "速度"),
    "save": ("Save", "保存"),
    "video": ("Video", "视频"),
    "save_svg": ("Save this moment as an SVG picture", "将当前画面保存为 SVG 图片"),
    "save_gif": ("Save the film as a GIF animation", "将整段动画保存为 GIF"),
    "save_video": ("Save the film as a video", "将整段动画保存为视频"),
    # the title of a film
    "on": ("{algorithm} on {setting}", "{algorithm}（{setting}）"),
    "ranks_given": ("{n} rank{s}", "{n} 个进程"),
    "root_given": ("root {rank}", "根为 {rank} 号进程"),
    "segments_given": ("{n} segment{s}", "分为 {n} 段"),
    "hosts_given": ("{n} host{s}", "{n} 台主机"),
    "comma": (", ", "，"),
    "and": (" and ", " 与 "),
    # frames
    "start": ("start", "开始"),
    "step": ("step {step}", "第 {step} 步"),
    "on_each_rank": ("on each rank", "各进程本地操作"),
    "local": ("local", "本地"),
    "messages_here": ("{n} message{s}", "{n} 条消息"),
    "before_first": ("Before the first message.", "尚未发送消息。"),
    "only_local": (
        "No messages: ranks copy or combine blocks that they hold.",
        "没有消息：各进程复制或归约自己持有的块。",
    ),
    "step_messages": ("Step {step}: {messages}", "第 {step} 步：{messages}"),
    "more": ("and {n} more", "以及另外 {n} 条"),
    "cost_so_far": ("Cost so far: {cost}", "累计代价：{cost}"),
    "simulated": ("simulated: {time} \u00b5s", "模拟时间：{time} \u00b5s"),
    "waits": ("rank {rank} waits for rank {peer}", "{rank} 号进程等待 {peer} 号进程"),
    "all_ranks": ("all ranks", "所有进程"),
    "some_ranks": ("rank{s} {ranks}", "进程 {ranks}"),
    "host": ("host {host}", "主机 {host}"),
    "rank_label": ("rank {rank}", "进程 {rank}"),
    # blocks
    "all": ("all", "全部"),
    "of": ("of {rank}", "进程 {rank}"),
    "part": ("part {part}", "第 {part} 块"),
    "vector": ("vector", "向量"),
    "block": ("block {block}", "第 {block} 块"),
    "counts": ("counts", "长度"),
    "to": ("to {rank}", "发往 {rank}"),
    "from": ("from {rank}", "来自 {rank}"),
    "send_row": ("send {rank}", "发送 {rank}"),
    "receive_row": ("receive {rank}", "接收 {rank}"),
    "passing": ("passing", "转发"),
    "blocks": ("{n} blocks", "{n} 块"),
    "block_from": ("{block}: from {ranks}", "{block}：来自 {ranks}"),
    # the legend
    "done": (
        "\u2713 finished \u00b7 faded: no longer needed \u00b7 thick edge: written in this step",
        "\u2713：已完成 \u00b7 浅色：不再需要 \u00b7 粗边框：本步写入",
    ),
    "matrix_key": (
        "\u2192 sends to, \u2190 receives from, + receives from and combines; bar: finished fraction",
        "\u2192：发送给，\u2190：接收自，+：接收并归约；绿条：已完成的比例",
    ),
    "bands_key": (
        "r: each rank of a band, modulo p; r\u00b11: plus on even ranks, minus on odd ones; r^4: exclusive or; "
        "narrow columns: as in the step before",
        "r：色带中的每个进程，按模 p 计算；r\u00b11：偶数号进程取加，奇数号取减；r^4：按位异或；窄列：与上一步相同",
    ),
    "heard_key": (
        "blocks: the ranks that a rank has heard from, directly or through others",
        "块：该进程直接或间接收到过哪些进程的消息",
    ),
    "stripes_key": (
        "stripes: the contributing ranks, in the order of combination",
        "条纹：参与归约的进程，按归约的先后排列",
    ),
    "colors_key": ("colors: the rank that the block comes from", "颜色：块来自哪个进程"),
    "counts_key": ("#1: the counts of blocks from rank 1", "#1：1 号进程各块的长度"),
    "low_key": (
        "rows of copies of the vector are drawn lower, not to scale",
        "存放向量副本的行画得较矮，未按比例",
    ),
    "stored": ("stored on arrival", "到达后直接存放"),
    "combined_on_arrival": ("combined on arrival", "到达后归约"),
    "bytes_sample": ("{amount} bytes", "{amount} 字节"),
    "waiting_rank": ("waiting rank", "等待中的进程"),
    # costs
    "costs": ("Costs", "代价"),
    "formula": ("formula (busiest rank)", "公式（最繁忙的进程）"),
    "here": ("here, p = {p}", "此处 p = {p}"),
    "per_rank": ("{amount} per rank", "每个进程 {amount}"),
    "on_the_busiest": ("{amount} on the busiest rank", "最繁忙的进程 {amount}"),
    "at_most": ("at most {formula}", "至多 {formula}"),
    "Rounds": ("Rounds", "轮数"),
    "Messages": ("Messages", "消息数"),
    "Sent": ("Sent", "发送量"),
    "Received": ("Received", "接收量"),
    "Cost": ("Cost", "代价"),
    "Limits": ("Limits", "限制"),
    "Source": ("Source", "出处"),
    "rank": ("rank", "进程"),
    "messages": ("messages", "消息数"),
    "sent": ("sent", "发送量"),
    "received": ("received", "接收量"),
    "combined": ("combined", "归约量"),
    "notation": (
        "p: ranks; h: hosts; S: segments; Z: bytes of the whole vector, or of the blocks of all ranks together (for "
        "all-to-all, of the send buffer of one rank); lg: logarithm to base 2, rounded up; digits(p, b): digits to "
        "base b that are not 0, of all numbers below p; k: number in the name; log(p, k): logarithm to base k, rounded "
        "up; fan(p, k): messages of the root of a k-nomial tree; pat(p, k): rounds of PAT; side(p, k): side of the "
        "smallest cube of k dimensions for p ranks; ports, around and lgs(p, k): ports of a rank, sum of the sides "
        "less k, and sum of lg of the sides of a torus of k dimensions; alpha: latency of a message; beta: time per "
        "byte sent or received; gamma: time per byte combined.",
        "p：进程数；h：主机数；S：段数；Z：整个向量的字节数，或所有进程的块的总字节数（对于 all-to-all，是一个进程的"
        "发送缓冲区的字节数）；lg：以 2 为底的对数，向上取整；digits(p, b)：小于 p 的所有数写成 b 进制后非零数字的"
        "总数；k：名称中的数；log(p, k)：以 k 为底的对数，向上取整；fan(p, k)：k 项树的根发出的消息数；pat(p, k)："
        "PAT 的轮数；side(p, k)：容纳 p 个进程的最小 k 维立方体的边长；ports、around 和 lgs(p, k)：k 维环面上一个进程"
        "的端口数、各边长之和减 k、各边长的 lg 之和；alpha：一条消息的时延；beta：收发每字节的时间；gamma：归约每字节"
        "的时间。",
    ),
    "unit_block": ("Z: bytes of a block", "Z：一个块的字节数"),
    # ranks that wait forever
    "arrow_key": ("Each arrow leads to the rank that another rank waits for.", "箭头由等待的进程指向它所等待的进程。"),
    "deadlock_key": (" Thick arrows: the deadlock.", "粗箭头构成死锁。"),
    "finished_key": (" Dashed: has finished.", "虚线：已经结束的进程。"),
    # time charts of pipelines
    "stage": ("stage {stage}", "阶段 {stage}"),
    "forward": ("forward", "前向传播"),
    "backward": ("backward", "反向传播"),
    "input_gradient": ("input gradient", "对输入的梯度"),
    "weight_gradient": ("weight gradient", "对权重的梯度"),
    "micro_batches": ("numbers: micro-batches", "数字：微批次"),
    "micro_batch_work": (
        "{kind} of micro-batch {batch}, chunk {chunk}",
        "第 {batch} 个微批次，第 {chunk} 部分：{kind}",
    ),
    # the playground
    "steps_of": ("The steps of the algorithm", "算法的各个步骤"),
    "challenge": ("Challenge", "挑战题"),
    "primitive": ("Collective", "集合操作"),
    "algorithm": ("Algorithm", "算法"),
    "beside": ("Beside it", "并排对比"),
    "ranks": ("Ranks", "进程数"),
    "root": ("Root", "根进程"),
    "segments": ("Segments", "段数"),
    "per_host": ("Ranks on a host", "每台主机的进程数"),
    "nbytes": ("Bytes", "字节数"),
    "topology": ("Topology", "拓扑"),
    "one_switch": ("one switch", "单台交换机"),
    "generator": ("The algorithm: a generator of rounds", "算法：逐轮生成消息的生成器"),
    "undo": ("Undo all changes", "撤销全部修改"),
    "copy": ("Copy the link", "复制链接"),
    "no_challenge": ("none", "无"),
    "nothing_beside": ("nothing", "无"),
    "loading": ("Loading Python ...", "正在加载 Python……"),
    "proving": ("Proving ...", "正在证明……"),
    "proved": ("Proved for {first} to {last} ranks.", "已证明：进程数为 {first} 到 {last} 时均正确。"),
    "copied": ("The link is copied.", "链接已复制。"),
    "stopped": ("It took too long, and was stopped.", "运行时间过长，已中止。"),
    "not_loaded": ("The Python runtime could not be loaded.", "无法加载 Python 运行环境。"),
}


def language() -> str:
    """Return the language of the words that `say` returns."""
    return _spoken.get()


@contextmanager
def speaking(name: str) -> Iterator[None]:
    """Let `say` return words in this language, one of `LANGUAGES`."""
    if name not in LANGUAGES:
        raise ValueError(f"language {name!r} is not one of: {', '.join(LANGUAGES)}")
    token = _spoken.set(name)
    try:
        yield
    finally:
        _spoken.reset(token)


def say(key: str, **given: object) -> str:
    """Return words in the current language; with a number `n`, ``{s}`` is the ending of the English plural."""
    text = WORDS[key][LANGUAGES.index(language())]
    return text.format(**{"s": "" if given.get("n") == 1 else "s"} | given) if given else text
