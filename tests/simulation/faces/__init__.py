"""The faces of a store as a life looks at it beside the reader: a scan's tasks, and fsspec's file system."""
