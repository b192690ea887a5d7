"""Chinese for every text of `--help`, by the English one. Texts that are values alone (`en | zh`) are in `ALIKE`."""

HEADINGS = {
    "Usage: ": "用法：",
    "[OPTIONS]": "[选项]",
    "Arguments": "参数",
    "Options": "选项",
    "[required]": "[必填]",
    "[default: {}]": "[默认：{}]",
    "[env var: {}]": "[环境变量：{}]",
    "Show this message and exit.": "显示本说明并退出。",
}

ALIKE = frozenset(
    {
        "en | zh",
        "on | off (HiDream-O1)",
        "cpu | 300i-duo | 300i-pro | 800i-a2 | a3 | 310P3 | 910B3 ...",
        "float16 | bfloat16 | float32",
        "command | docker | compose | k8s | systemd | json",
        "modelscope | huggingface",
        "310P3 | 910B3",
        "none | default | a,b,...",
    }
)

# What a command does.
COMMANDS = {
    "What is here, what works, why not, and what to do next. Exit 1 when something is wrong, 2 without a verdict.": (
        "本机有什么、能用什么、为什么不能用、下一步做什么。有问题时退出码为 1，没有结论时为 2。"
    ),
    "What a checkpoint is and whether it can be served, from headers only. Exit 1 when it cannot.": (
        "只读文件头，说明一个权重是什么、能否部署。不能部署时退出码为 1。"
    ),
    "Download a model: only the files serving needs, resuming, with checksums; ends with inspect.": (
        "下载模型：只下载部署需要的文件，断点续传并校验，最后执行 inspect。"
    ),
    "The resolved plan, with reasons and memory. Exit 1 when it does not fit. Other options go to vLLM.": (
        "完整的部署方案，包括理由与内存。放不下时退出码为 1。其余选项传给 vLLM。"
    ),
    "Findings in a vllm serve or docker run command, script or compose file. Exit 1 when one is an error.": (
        "检查 vllm serve 或 docker run 命令、脚本或 compose 文件。发现错误时退出码为 1。"
    ),
    "Serve a model: plan, start vLLM, say when it has answered, stop with Ctrl-C. Other options go to vLLM.": (
        "启动服务：规划、启动 vLLM、应答后告知，按 Ctrl-C 停止。其余选项传给 vLLM。"
    ),
    "Ask one question, at temperature 0, about any number of pictures.": "就任意数量的图片提一个问题，温度为 0。",
    "Draw one picture; a directory is served for it and stopped.": "画一张图；给出目录时为它启动服务，画完停止。",
    "Record answers, token ids, log probabilities and hashes of every stage, at temperature 0.": (
        "在温度 0 下记录回答、token 编号、对数概率与各阶段的哈希。"
    ),
    "Judge two recorded runs: exit 0 pass, 1 fail, 2 no verdict.": (
        "比较两次记录：退出码 0 通过，1 不通过，2 没有结论。"
    ),
    "Verify a model in stages: exit 0 passed, 1 a stage failed, 2 no verdict.": (
        "分阶段验证模型：退出码 0 通过，1 某阶段不通过，2 没有结论。"
    ),
    "Find the stage, module, operator or weight where the candidate leaves the base: exit 0 none, 1 found, 2 not.": (
        "找出候选与基准从哪个阶段、模块、算子或权重开始不同：退出码 0 无差异，1 已找到，2 未找到。"
    ),
    "Write the report of recorded runs, or check one (a RUN, a verify directory, or a report's HTML).": (
        "为记录生成报告，或核对一份报告（RUN、verify 目录或报告的 HTML）。"
    ),
    (
        "Run a command, child processes included, on an emulated NPU (emulated: evidence about no hardware). "
        "Its exit code."
    ): "在模拟 NPU 上运行一个命令及其子进程（模拟 emulated：不构成硬件证据）。退出码为该命令的退出码。",
    "Ask this machine's operators everything we want to know; each question runs in a process of its own.": (
        "向本机算子询问全部未决问题；每个问题在单独的进程中运行。"
    ),
    "Collect logs, status, plan and versions into one archive without keys, names and addresses.": (
        "把日志、状态、方案与版本收入一个归档文件，去除密钥、名称与地址。"
    ),
    "Wheels, rules, checksums, licences and a Containerfile in one directory. --check exits 1 for a changed file.": (
        "把 wheel、规则、校验和、许可证与 Containerfile 放入一个目录。--check 发现改动的文件时退出码为 1。"
    ),
    "Serve the bundled model, look at pictures, draw one, verify, report: exit 0 when the verification passed.": (
        "启动自带模型、看图、画图、验证、生成报告：验证通过时退出码为 0。"
    ),
}

# What a machine and a plan are given.
MACHINE = {
    "number of chips (a 300I Duo card has two)": "芯片数量（一张 300I Duo 卡有两颗）",
    "GiB of one chip (of the host for cpu)": "每颗芯片的内存，GiB（cpu 时为主机内存）",
    "GiB of each chip that other services hold": "其他服务在每颗芯片上占用的 GiB",
    "CANN version": "CANN 版本",
    "driver version": "驱动版本",
    "vllm-ascend version": "vllm-ascend 版本",
    "model directory, or the name of a published model": "模型目录，或已发布模型的名称",
    "tokens of prompt and answer together": "提示与回答合计的 token 数",
    "chips": "使用的芯片数",
    "share of a chip's memory, 0 to 1": "使用芯片内存的比例，0 到 1",
    "requests computed together": "同时计算的请求数",
    "address to listen on": "监听地址",
    "port to listen on": "监听端口",
    "the model's name in requests": "请求中使用的模型名称",
    "machines like this one that share the model": "共同运行该模型的同类机器数量",
    "address of the first of several machines": "多台机器中第一台的地址",
    "the chip or card it is meant for": "命令所针对的芯片或板卡",
    "the release it is meant for": "命令所针对的版本",
    "a script, document or compose file; - reads the standard input": "脚本、文档或 compose 文件；- 读取标准输入",
}

# Everything else, by command.
OPTIONS = {
    "stable, versioned JSON and nothing else on stdout": "标准输出只有稳定、带版本号的 JSON",
    "ask this chip's operators, each in a child process": "探测本芯片的算子，各在一个子进程中",
    "probe a chip somebody else uses": "即使芯片有人在用也探测",
    "a running server's URL": "运行中的服务的 URL",
    "that server's key": "该服务的密钥",
    "an error text, or the path of a log": "一段错误文本，或日志文件的路径",
    "a report of ascend-vl field, from any machine": "ascend-vl field 的报告，来自任何机器",
    "a rule, adaptation or error code": "规则、适配或错误代码",
    "model directory, hub cache entry, safetensors file, or repository id": (
        "模型目录、缓存目录、safetensors 文件或仓库名"
    ),
    "modelscope | huggingface, for a repository id": "modelscope | huggingface，用于仓库名",
    "branch, tag or commit of a repository": "仓库的分支、标签或提交",
    "owner/name": "所有者/名称",
    "branch, tag or commit": "分支、标签或提交",
    "target directory (default: ./NAME)": "目标目录（默认：./NAME）",
    "use what is here; never the network": "只用本地已有的内容，不联网",
    "download even what cannot be served": "即使不能部署也下载",
    "a model directory": "模型目录",
    "a model directory, or the name of a repository": "模型目录，或仓库名",
    "required of every request": "每个请求都必须携带的密钥",
    "name every object that is replaced": "列出每个被替换的对象",
    "http://HOST:PORT, a model directory, or transformers:DIRECTORY": (
        "http://HOST:PORT、模型目录或 transformers:DIRECTORY"
    ),
    "what to ask": "问题",
    "a picture file or data: URL; repeatable": "图片文件或 data: URL；可重复",
    "longest answer, in tokens": "回答的最大 token 数",
    "for a server that wants one": "服务需要的密钥",
    "what to draw, or how to change the references": "画什么，或如何修改参考图",
    "the picture to write: .png, .jpg or .webp": "要写入的图片：.png、.jpg 或 .webp",
    "a reference picture; up to 10": "参考图；最多 10 张",
    "boxes [[x1, x2, y1, y2], ...] as JSON, or a file": "框 [[x1, x2, y1, y2], ...]：JSON 或文件",
    "full | dev | dev-2604; default: the checkpoint's": "full | dev | dev-2604；默认由权重决定",
    "WIDTHxHEIGHT, multiples of 32, or auto": "宽x高，32 的倍数，或 auto",
    "the reference's listed size of the nearest aspect": "取参考实现列表中宽高比最接近的尺寸",
    "size from the one reference": "尺寸取自唯一的参考图",
    "denoising steps": "去噪步数",
    "default: random, and told": "默认随机，并会告知",
    "guidance scale; above 1 doubles the work": "引导强度；大于 1 时计算量加倍",
    "shift of the full recipe's schedule": "full 配方时间表的 shift",
    "bitwise repeatable": "逐位可重复",
    "also a visible label; the metadata always has one": "另加可见标识；元数据中始终有标识",
    "keep the newest preview in this file": "把最新的预览保存到该文件",
    "write every step's arrays to this .npz": "把每一步的数组写入该 .npz",
    "for a directory: float32, bfloat16 or float16": "用于目录：float32、bfloat16 或 float16",
    "JSONL of {id, images, prompt, max_tokens, key_fields}": "JSONL，每行 {id, images, prompt, max_tokens, key_fields}",
    "directory of the RUN to write; new or empty": "要写入的 RUN 目录；须为新目录或空目录",
    "float32, bfloat16 or float16": "float32、bfloat16 或 float16",
    "further answers to each request: self-agreement": "每个请求再答几次：自身一致性",
    "also ask all cases this many at a time": "另外以该并发数再问一遍全部用例",
    "also store pixel values and tower outputs": "同时保存像素值与视觉塔输出",
    "a RUN whose answers to follow, position by position": "逐位置跟随其回答的 RUN",
    "a RUN directory, or JSONL of {id, text[, token_ids, fields]}": (
        "RUN 目录，或 JSONL：{id, text[, token_ids, fields]}"
    ),
    "the run to judge": "要评判的记录",
    "NAME=V for every case, NAME.mean=V, NAME=LO..HI; repeatable": (
        "每个用例 NAME=V，均值 NAME.mean=V，区间 NAME=LO..HI；可重复"
    ),
    "NAME=V, NAME.mean=V, NAME=LO..HI; repeatable": "NAME=V、NAME.mean=V、NAME=LO..HI；可重复",
    "named requirements, used without --require: default, port": "未给 --require 时使用的要求：default、port",
    "A dummy weights, B real weights, C against Transformers": "A 虚拟权重，B 真实权重，C 与 Transformers 对比",
    "JSONL of cases; default: the bundled ones": "用例 JSONL；默认用自带用例",
    "float32, bfloat16 or float16; default: the plan's": "float32、bfloat16 或 float16；默认按方案",
    "directory for runs, verdict and report; new or empty": "存放记录、结论与报告的目录；须为新目录或空目录",
    "a recorded RUN to compare with, instead of Transformers here": "与之对比的 RUN，代替在此运行 Transformers",
    "default, or port: the HiDream port's own procedure": "default，或 port：HiDream 移植自己的流程",
    "transformers:DIRECTORY": "transformers:目录",
    "a model directory, run in our engine": "模型目录，在我们的引擎中运行",
    "JSONL of cases": "用例 JSONL",
    "the case whose answer is wrong": "回答错误的用例",
    "directory for what is found; new or empty": "存放结果的目录；须为新目录或空目录",
    "chips to split the candidate over": "候选模型切分到的芯片数",
    "a directory that verify wrote, or RUNs (the first is the base)": "verify 写出的目录，或多个 RUN（第一个为基准）",
    "HTML file; Markdown in both languages goes beside it": "HTML 文件；两种语言的 Markdown 放在旁边",
    "recompute every number from the files; exit 1 when one differs": "由文件重新计算每个数字；不一致时退出码为 1",
    "the command, after --": "命令，写在 -- 之后",
    "chips of the emulated machine": "模拟机器的芯片数",
    "GiB of each chip": "每颗芯片的 GiB",
    "default: the one the stack was published with": "默认：与该版本一同发布的版本",
    "vllm-ascend release of .venv-ascend-RELEASE here": "此处 .venv-ascend-RELEASE 的 vllm-ascend 版本",
    "the report to write, or to carry on": "要写入或继续的报告",
    "stop asking after this long": "到此时长后停止提问（分钟）",
    "although somebody else holds memory of the chip": "即使其他进程占用芯片内存也探测",
    "ask again what an earlier report answers": "重新询问之前报告中已回答的问题",
    "HiDream-O1 weights: is their text degenerate?": "HiDream-O1 权重：其文本是否退化？",
    "also the plan for this model": "同时收入该模型的方案",
    "the archive to write": "要写入的归档文件",
    "a log to add; may be given several times": "要收入的日志；可多次给出",
    "a new directory": "新目录",
    "aarch64, x86_64, or both with a comma": "aarch64、x86_64，或用逗号给出两者",
    "Python of the container: 3.10 | 3.11 | 3.12 (default: of its image)": (
        "容器的 Python：3.10 | 3.11 | 3.12（默认：其镜像的版本）"
    ),
    "310P | A2 | A3: the image of the Containerfile": "310P | A2 | A3：Containerfile 所用的镜像",
    "verify a pack's checksums instead": "改为核对已有打包目录的校验和",
    "directory for pictures and report; new": "存放图片与报告的目录；须为新目录",
    "another model directory": "另一个模型目录",
}

HELP = COMMANDS | MACHINE | OPTIONS
