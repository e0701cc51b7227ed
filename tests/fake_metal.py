"""A stand-in for PyObjC's `Metal` that runs kernels in the simulator, to test the host code away from a Mac.

It has the calls that our launcher makes, spelled as PyObjC spells them, and is strict where Metal is silent:
a kernel's buffers must all be bound, and a program may not have more threads than the pipeline allows.
"""

from __future__ import annotations

from collections import namedtuple
from types import SimpleNamespace
from typing import Any

import numpy as np

from kittens import sim
from kittens.backends.metal.sim import VENDOR

MTLMathModeSafe = 0
MTLSize = namedtuple("MTLSize", "width height depth")
MTLSizeMake = MTLSize


class Buffer:
    def __init__(self, data: bytes):
        self.memory = np.frombuffer(data, np.uint8).copy()

    def length(self) -> int:
        return self.memory.nbytes

    def contents(self) -> Any:
        return SimpleNamespace(as_buffer=lambda n: self.memory[:n].data)


class Options:
    @classmethod
    def alloc(cls) -> Options:
        return cls()

    def init(self) -> Options:
        self.language = self.math = None
        return self

    def setLanguageVersion_(self, version: int) -> None:
        self.language = version

    def setMathMode_(self, mode: int) -> None:
        self.math = mode


MTLCompileOptions = Options


class Encoder:
    def __init__(self) -> None:
        self.bound: dict[int, Any] = {}

    def setComputePipelineState_(self, pipeline: Any) -> None:
        self.pipeline = pipeline

    def setBuffer_offset_atIndex_(self, buffer: Buffer, offset: int, index: int) -> None:
        self.bound[index] = buffer.memory[offset:]

    def setBytes_length_atIndex_(self, data: bytes, length: int, index: int) -> None:
        assert len(data) == length <= 4096
        self.bound[index] = data

    def dispatchThreadgroups_threadsPerThreadgroup_(self, grid: MTLSize, threads: MTLSize) -> None:
        program = self.pipeline.program
        assert sorted(self.bound) == list(range(len(program.parameters)))
        assert threads.width <= self.pipeline.maxTotalThreadsPerThreadgroup()
        arguments = [self.bound[i] for i in sorted(self.bound)]
        program.run(tuple(grid), tuple(threads), arguments, shared_bytes=32768)

    def endEncoding(self) -> None:
        self.ended = True


class Commands:
    def computeCommandEncoder(self) -> Encoder:
        self.encoder = Encoder()
        return self.encoder

    def commit(self) -> None:
        assert self.encoder.ended

    def waitUntilCompleted(self) -> None:
        pass

    def error(self) -> None:
        return None


class Device:
    def __init__(self, max_threads: int = 1024):
        self.max_threads = max_threads
        self.shared_bytes = 0
        self.compiled: list[Options] = []

    def supportsFamily_(self, family: int) -> bool:
        return family <= 1008

    def newLibraryWithSource_options_error_(self, source: str, options: Options, _: None) -> tuple[Any, Any]:
        self.compiled.append(options)

        def function(name: str) -> Any:
            return SimpleNamespace(program=sim.build(source, VENDOR, name))

        if "#error" in source:
            return None, SimpleNamespace(localizedDescription=lambda: "program_source:1:2: error: told to")
        return SimpleNamespace(newFunctionWithName_=function), None

    def newComputePipelineStateWithFunction_error_(self, function: Any, _: None) -> tuple[Any, None]:
        function.maxTotalThreadsPerThreadgroup = lambda: self.max_threads
        function.staticThreadgroupMemoryLength = lambda: self.shared_bytes
        return function, None

    def newBufferWithBytes_length_options_(self, data: bytes, length: int, options: int) -> Buffer:
        assert len(data) == length
        return Buffer(data)

    def newBufferWithLength_options_(self, length: int, options: int) -> Buffer:
        return Buffer(bytes(length))

    def newCommandQueue(self) -> Any:
        return SimpleNamespace(commandBuffer=Commands)


DEVICES = [Device()]


def MTLCopyAllDevices() -> list[Device]:
    return DEVICES
