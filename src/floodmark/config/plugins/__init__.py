"""What the modules of a project and installed packages add: functions, formats, sources and sinks."""
