"""Examples at the end of each command's help, and of its manual page."""

from __future__ import annotations

from collections.abc import Mapping

# By the command's words; a note stands after two blanks and `#`.
EXAMPLES: Mapping[str, str] = {
    "init": """
tierfs --store /srv/store init --cold-dir /mnt/nas/tierfs
tierfs --store /srv/store init --bucket s3://bucket/logs --endpoint-url http://s3.example:9000
tierfs --store /srv/store init --cold-url webhdfs://namenode.example/tierfs/logs
tierfs --store /srv/store init --if-missing --bucket s3://bucket/logs    # in a script that runs again
tierfs --store /srv/store init --cold none    # add one later: tierfs config cold.url=URL
""",
    "status": """
tierfs status
tierfs status --watch 5
tierfs status --check
tierfs status --json | jq .problems
""",
    "report": """
tierfs report
tierfs report --example-prices                  # fill it in with your provider's prices
tierfs report --cost --prices prices.toml --replicas 2
""",
    "admin": """
tierfs admin                           # in the background, until SIGTERM
tierfs --store /srv/store admin -f     # for systemd
""",
    "daemon": """
tierfs daemon                          # in the background, until SIGTERM
tierfs --store /srv/store daemon -f    # for systemd
""",
    "config": """
tierfs config                            # all settings, and the cold tier's address
tierfs config read.deadline_s=1min       # change one; NAME= restores its default
tierfs config logs                       # the policies in force at logs
tierfs config logs retention_age=90d     # set one there; NAME= removes it
tierfs config / chunk_age=10min          # set one for the whole store
""",
    "completion": """
eval "$(tierfs completion bash)"    # in ~/.bashrc
""",
    "append": """
tierfs append web/access.log today.log
journalctl -f | tierfs append host/journal
printf 'only if it is still 4096 bytes long' | tierfs append web/access.log --expect-offset 4096
tierfs append orders/today --ack cold < orders    # durable in the bucket when it returns
""",
    "ingest": """
tierfs ingest /var/log/nginx --into nginx
tierfs ingest /var/log/nginx nginx --exclude '*.gz'
tierfs ingest /var/log/old archive --decompress
tierfs ingest --open app.log --into app    # keep it open for appends
""",
    "follow": """
tierfs follow /var/log/app '/var/log/nginx/*.log' --into hosts/web1    # until Ctrl-C
tierfs follow /var/log/app --into hosts/web1 --once                    # for cron
tierfs follow /var/log/app --into hosts/web1 --background              # by the mount or daemon
tierfs follow --journal nginx.service --into hosts/web1
tierfs follow --list
""",
    "seal": """
tierfs seal logs/2026-11-25
tierfs seal 'logs/2026-10-*'
tierfs seal topics/orders/00000000000000000042    # close a ledger: it can be offloaded
""",
    "unseal": """
tierfs unseal logs/2026-11-25
""",
    "concat": """
tierfs concat logs/2026 logs/2026-11-25    # removes the second name; copies no byte
""",
    "clone": """
tierfs clone logs/web trial/web                # the same bytes; appends to one do not change the other
tierfs clone logs/web trial/start --to 64MiB   # the bytes before an offset
""",
    "trim": """
tierfs trim logs/web --before 64MiB --dry-run
tierfs trim public/default/topic --before 43    # the closed ledgers before ledger 43
""",
    "mkdir": """
tierfs mkdir -p hosts/web1
""",
    "mv": """
tierfs mv logs/web logs/old/web
tierfs mv hosts/web1 archive/    # a directory, with all that is below it
""",
    "rm": """
tierfs rm logs/2026-11-25          # for a day it can be restored: tierfs restore
tierfs rm -r logs/2025 -n          # show the segments to remove
tierfs rm -r logs/2025 --now -y    # permanently, without the trash
""",
    "restore": """
tierfs restore logs/2026-11-25
tierfs restore logs/2026-11-25 --as kept/2026-11-25
tierfs restore --from-bucket logs/web                 # from: tierfs backup --to-bucket
tierfs --store /srv/new restore /backup/store.dump    # a store from its backup
""",
    "ledger create": """
tierfs ledger create public/default/topic
""",
    "ledger append": """
tierfs ledger append public/default/topic entry1 entry2      # each file is one entry
tierfs ledger append public/default/topic --lines < input    # each line is an entry
""",
    "ledger read": """
tierfs ledger read public/default/topic/00000000000000000042 --from 100 --to 110
tierfs ledger read public/default/topic/00000000000000000042 --messages | jq .payload
tierfs ledger read public/default/topic --since 2h    # in each ledger of the topic
""",
    "ledger ls": """
tierfs ledger ls public
""",
    "ledger status": """
tierfs ledger status public/default/topic
tierfs ledger status public/default/topic --for-pulsar json | jq .ledgerInfo
""",
    "ledger terminate": """
tierfs ledger terminate public/default/topic
""",
    "ledger export": """
tierfs ledger export public/default/topic /srv/for-pulsar
""",
    "ledger verify": """
tierfs ledger verify public/default/topic
""",
    "mount": """
tierfs mount /mnt/logs
tierfs mount /srv/store /mnt/logs -o allow_other,uid=1000
tierfs mount -f /mnt/logs    # for systemd
""",
    "umount": """
tierfs umount /mnt/logs
tierfs umount --lazy /mnt/logs    # also while files are open
""",
    "ls": """
tierfs ls -l logs
tierfs ls -lt logs     # the newest first; -S: the largest
tierfs ls -R
tierfs ls --removed    # what can be restored
""",
    "tree": """
tierfs tree logs
tierfs tree -L 2 -d
""",
    "diff": """
tierfs diff logs/web copies/web    # exit code 0: equal, 1: different
""",
    "sha256sum": """
tierfs sha256sum 'logs/*' > sums
tierfs sha256sum -c sums
""",
    "md5sum": """
tierfs md5sum logs/web
""",
    "info": """
tierfs info logs/web
tierfs info --map logs/web
tierfs info 'logs/*' --json | jq -r '[.segment, .crc32c] | @tsv'
""",
    "du": """
tierfs du -s
tierfs du logs -d 1 --sort    # the directories in it, the largest first
tierfs du --top 10
""",
    "cat": """
tierfs cat logs/web | grep ERROR
tierfs cat -f logs/web
tierfs cat --tail 10 -f logs/web
tierfs cat --from 1MiB --to 2MiB logs/web
""",
    "top": """
tierfs top /mnt/logs
tierfs top -b -n 10 -d 5    # ten frames, one every 5 s
tierfs top --once --json | jq .
""",
    "offload": """
tierfs offload            # all bytes of the store
tierfs offload logs/web
tierfs offload public/default/topic --before 43:0
tierfs offload logs/web --before 64MiB
tierfs offload logs --keep 1GiB    # all but the newest of each segment
""",
    "evict": """
tierfs evict logs/2025 -n    # show the bytes to evict
tierfs evict logs/2025
tierfs evict logs --keep 10GiB
""",
    "consolidate": """
tierfs consolidate logs
tierfs consolidate --compress logs    # after: tierfs config logs compression=auto
""",
    "archive": """
tierfs archive logs/2024 --class GLACIER_IR
tierfs archive logs/2024 --back
""",
    "thaw": """
tierfs thaw logs/2024 --days 3 --wait
""",
    "warmup": """
tierfs warmup logs/2026-11-25
""",
    "check": """
tierfs check                      # records, files, objects, journal
tierfs check --read               # and every byte of both tiers
tierfs check --read --repair
tierfs check logs/web             # every byte of one segment
""",
    "doctor": """
tierfs doctor
tierfs doctor --master spark://host:7077 --mount /mnt/logs
tierfs doctor --bench /mnt/logs
""",
    "inspect": """
tierfs inspect journal/00000000000000000001
tierfs inspect s3://bucket/offloaded/9b6ab3a1-7bbe-4282-badb-b8de5374b894-ledger-42-index --endpoint-url http://s3.example:9000
tierfs inspect /mnt/nas/tierfs/tierfs-store --json
""",
    "gc": """
tierfs gc
tierfs gc --delete
""",
    "pipeline ingest": """
tierfs pipeline ingest '/data/day=2026-11-25/*.log' --into logs
tierfs pipeline ingest events.parquet --key user --value line --into users
""",
    "pipeline scrub": """
tierfs pipeline scrub
tierfs pipeline scrub logs --master spark://host:7077
""",
    "pipeline table": """
tierfs pipeline table logs/web --to lake.web.lines --warehouse /srv/warehouse
tierfs pipeline table logs/web --to /srv/lines/ --type json --every 1min
""",
    "pipeline report": """
tierfs pipeline report --output report.html
""",
    "pipeline export": """
tierfs pipeline export logs --to /srv/tables/logs --partition-by segment --verify
""",
    "pipeline rebuild": """
tierfs pipeline rebuild --output rebuilt.csv
""",
    "move": """
tierfs move --to s3://bucket/logs --region eu-central-1
tierfs move --to /mnt/nas2/tierfs
""",
    "adopt": """
tierfs adopt s3://bucket/offloaded --into pulsar --dry-run
tierfs adopt s3://bucket/rocketmq --as rocketmq --into mq
tierfs adopt /mnt/nas/logs --as objects --into nas
tierfs adopt s3://bucket/rocketmq --into mq --every 5min    # new data every 5 minutes
""",
    "backup": """
tierfs backup /backup/store.dump
tierfs backup --to-bucket logs/web    # the metadata of one segment
""",
    "recover": """
tierfs --store /srv/new recover --bucket s3://bucket/logs
tierfs --store /srv/new recover --cold-url webhdfs://namenode.example/tierfs/logs
tierfs --store /srv/new recover --cold-dir /mnt/nas/tierfs
""",
    "replica": """
tierfs --store /srv/copy replica --bucket s3://bucket/logs
tierfs --store /srv/copy replica --refresh
tierfs --store /srv/standby replica --standby --takeover-after 1min --bucket s3://bucket/logs
""",
    "standby": """
tierfs --store /srv/standby standby                             # who is followed, and what prevents a takeover
tierfs --store /srv/standby standby --pause "new disk"          # then: standby --resume
tierfs --store /srv/standby standby --now                       # take the bucket over
""",
}
