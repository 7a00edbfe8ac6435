# The first lines of each script that dpkg runs.
#
# A mount imports modules when it first needs them, for days after its start. dpkg replaces the files of the old version
# by those of the new one while it runs, so no process runs from files that dpkg owns. It owns `package`; `configure`
# makes hard links of that below the version, where the programs' first lines and the bytecode point, and then lets
# `current` lead there. dpkg writes new files and renames them, so the links keep the old bytes: at every moment each
# process has all modules of its version, and a new process a complete version, the old one until the new one is ready.
# A version is deleted by the next configuration or removal after the last of its processes has ended.
set -e
lib=/usr/lib/tierfs
version=@VERSION@

# Print the ids of the processes that run from a directory. The pattern is read: as a word it would be in grep's own line.
processes_of() {
  printf '%s/\n' "$1" | grep -lsaF -f - /proc/[0-9]*/cmdline /proc/[0-9]*/maps | cut -d/ -f3 | sort -nu
}
