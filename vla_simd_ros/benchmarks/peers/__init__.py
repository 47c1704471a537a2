"""The production runtimes to compare with. Each is imported only when it is measured."""
