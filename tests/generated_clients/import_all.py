"""Imports every module of the generated package."""

import importlib
import pkgutil

import imagate_client

for module in pkgutil.walk_packages(imagate_client.__path__, "imagate_client."):
    importlib.import_module(module.name)
