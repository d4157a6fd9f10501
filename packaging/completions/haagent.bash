# Completions of haagent for bash, made by haagent completion bash.

_haagent() {
    local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]} path= word i
    COMPREPLY=()
    for ((i = 1; i < COMP_CWORD; i++)); do
        word=${COMP_WORDS[i]}
        case "$path/$word" in
            /demo|/status|/members|/wait|/keygen|/verify|/promote|/resync|/config|/config/show|/config/check|/doctor|/completion|/version) path=$path/$word ;;
        esac
    done
    case "$prev" in
        --role) COMPREPLY=($(compgen -W 'master slave observer' -- "$cur")); return ;;
        --dir) COMPREPLY=($(compgen -d -- "$cur")); return ;;
        --commitlog-dir) COMPREPLY=($(compgen -d -- "$cur")); return ;;
        --config) COMPREPLY=($(compgen -f -- "$cur")); return ;;
        --broker-conf) COMPREPLY=($(compgen -f -- "$cur")); return ;;
        --cluster) :; return ;;
        --broker-name) :; return ;;
        --broker-id) :; return ;;
        --node) :; return ;;
        --segment-size) :; return ;;
        --join) :; return ;;
        --gossip-bind) :; return ;;
        --gossip-advertise) :; return ;;
        --key-file) COMPREPLY=($(compgen -f -- "$cur")); return ;;
        --link-security) COMPREPLY=($(compgen -W 'auto tls clear' -- "$cur")); return ;;
        --tls-cert) COMPREPLY=($(compgen -f -- "$cur")); return ;;
        --tls-key) COMPREPLY=($(compgen -f -- "$cur")); return ;;
        --tls-ca) COMPREPLY=($(compgen -f -- "$cur")); return ;;
        --broker-acl-file) COMPREPLY=($(compgen -f -- "$cur")); return ;;
        --broker-tls-ca) COMPREPLY=($(compgen -f -- "$cur")); return ;;
        --broker-tls-verify) COMPREPLY=($(compgen -W 'full ca none' -- "$cur")); return ;;
        --broker-tls-cert) COMPREPLY=($(compgen -f -- "$cur")); return ;;
        --broker-tls-key) COMPREPLY=($(compgen -f -- "$cur")); return ;;
        --broker) :; return ;;
        --tail-settle) :; return ;;
        --relay-acks) :; return ;;
        --link-bind) :; return ;;
        --link-advertise) :; return ;;
        --ha-bind) :; return ;;
        --remoting-bind) :; return ;;
        --ha-allow) :; return ;;
        --master) :; return ;;
        --master-ha) :; return ;;
        --ack) COMPREPLY=($(compgen -W 'memory disk' -- "$cur")); return ;;
        --retention) :; return ;;
        --metadata-interval) :; return ;;
        --on-divergence) COMPREPLY=($(compgen -W 'halt rewind' -- "$cur")); return ;;
        --compress) COMPREPLY=($(compgen -W 'off auto zstd' -- "$cur")); return ;;
        --limit-rate) :; return ;;
        --catchup-rate) :; return ;;
        --http) :; return ;;
        --log-level) COMPREPLY=($(compgen -W 'debug info warn error' -- "$cur")); return ;;
        --log-format) COMPREPLY=($(compgen -W 'auto text json' -- "$cur")); return ;;
        --duration) :; return ;;
        --rate) :; return ;;
        --max-lag) :; return ;;
        --offset) :; return ;;
        --acks) :; return ;;
        --timeout) :; return ;;
    esac
    case "$path" in
        '') COMPREPLY=($(compgen -W 'demo status members wait keygen verify promote resync config doctor completion version --help --version --role --dir --commitlog-dir --config --broker-conf --cluster --broker-name --broker-id --node --segment-size --join --gossip-bind --gossip-advertise --key-file --link-security --tls-cert --tls-key --tls-ca --insecure --broker-acl-file --broker-tls --broker-tls-ca --broker-tls-verify --broker-tls-cert --broker-tls-key --broker --tail-settle --relay-acks --link-bind --link-advertise --ha-bind --remoting-bind --ha-allow --master --master-ha --ack --retention --metadata-interval --on-divergence --compress --limit-rate --catchup-rate --http --log-level --log-format' -- "$cur")) ;;
        /demo)
            COMPREPLY=($(compgen -W '--help --duration --rate --keep --verbose' -- "$cur"))
            ;;
        /status)
            COMPREPLY=($(compgen -W '--help --http --dir --json --watch --max-lag' -- "$cur"))
            ;;
        /members)
            COMPREPLY=($(compgen -W '--help --json --http --dir' -- "$cur"))
            ;;
        /wait)
            COMPREPLY=($(compgen -W '--help --offset --now --acks --timeout --json --http --dir' -- "$cur"))
            ;;
        /keygen)
            COMPREPLY=($(compgen -W '--help' -- "$cur"))
            [[ $cur == -* ]] || COMPREPLY+=($(compgen -f -- "$cur"))
            ;;
        /verify)
            COMPREPLY=($(compgen -W '--help --json' -- "$cur"))
            [[ $cur == -* ]] || COMPREPLY+=($(compgen -d -- "$cur"))
            ;;
        /promote)
            COMPREPLY=($(compgen -W '--help --dir --yes' -- "$cur"))
            ;;
        /resync)
            COMPREPLY=($(compgen -W '--help --dir --yes' -- "$cur"))
            ;;
        /config)
            COMPREPLY=($(compgen -W 'show check --help' -- "$cur"))
            ;;
        /config/show)
            COMPREPLY=($(compgen -W '--help --role --dir --commitlog-dir --config --broker-conf --cluster --broker-name --broker-id --node --segment-size --join --gossip-bind --gossip-advertise --key-file --link-security --tls-cert --tls-key --tls-ca --insecure --broker-acl-file --broker-tls --broker-tls-ca --broker-tls-verify --broker-tls-cert --broker-tls-key --broker --tail-settle --relay-acks --link-bind --link-advertise --ha-bind --remoting-bind --ha-allow --master --master-ha --ack --retention --metadata-interval --on-divergence --compress --limit-rate --catchup-rate --http --log-level --log-format --json' -- "$cur"))
            ;;
        /config/check)
            COMPREPLY=($(compgen -W '--help --role --dir --commitlog-dir --config --broker-conf --cluster --broker-name --broker-id --node --segment-size --join --gossip-bind --gossip-advertise --key-file --link-security --tls-cert --tls-key --tls-ca --insecure --broker-acl-file --broker-tls --broker-tls-ca --broker-tls-verify --broker-tls-cert --broker-tls-key --broker --tail-settle --relay-acks --link-bind --link-advertise --ha-bind --remoting-bind --ha-allow --master --master-ha --ack --retention --metadata-interval --on-divergence --compress --limit-rate --catchup-rate --http --log-level --log-format' -- "$cur"))
            ;;
        /doctor)
            COMPREPLY=($(compgen -W '--help --role --dir --commitlog-dir --config --broker-conf --cluster --broker-name --broker-id --node --segment-size --join --gossip-bind --gossip-advertise --key-file --link-security --tls-cert --tls-key --tls-ca --insecure --broker-acl-file --broker-tls --broker-tls-ca --broker-tls-verify --broker-tls-cert --broker-tls-key --broker --tail-settle --relay-acks --link-bind --link-advertise --ha-bind --remoting-bind --ha-allow --master --master-ha --ack --retention --metadata-interval --on-divergence --compress --limit-rate --catchup-rate --http --log-level --log-format --json' -- "$cur"))
            ;;
        /completion)
            COMPREPLY=($(compgen -W 'bash zsh fish --help' -- "$cur"))
            ;;
        /version)
            COMPREPLY=($(compgen -W '--help' -- "$cur"))
            ;;
    esac
}

complete -F _haagent haagent
