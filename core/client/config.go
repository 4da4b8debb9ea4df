package client

import (
	"fmt"
	"net"
	"slices"
	"strconv"
	"time"

	"github.com/mooringdb/mooring/core/conn"
	"github.com/mooringdb/mooring/core/conn/metadata"
	"github.com/mooringdb/mooring/core/connstring"
	"github.com/mooringdb/mooring/core/description"
	"github.com/mooringdb/mooring/core/pool"
	"github.com/mooringdb/mooring/core/selection"
	"github.com/mooringdb/mooring/core/topology"
)

// warnings adds to those of the connection string what has no effect and may be ignored.
func warnings(cfg *connstring.Config) []connstring.Warning {
	return append(slices.Clip(cfg.Warnings), authWarnings(cfg)...)
}

// TopologyConfig returns the configuration with which a client of cfg monitors the deployment and
// connects to it. The seeds of cfg must be known, so mongodb+srv must be resolved. It reads the
// files that the tls options name, and does no network I/O.
func TopologyConfig(cfg *connstring.Config, opt Options) (topology.Config, error) {
	source, err := newMetadata(cfg, opt)
	if err != nil {
		return topology.Config{}, err
	}
	opt.guardSink()
	return topologyConfig(cfg, opt, source)
}

// newMetadata returns what servers are told of a client.
func newMetadata(cfg *connstring.Config, opt Options) (*metadata.Source, error) {
	host := metadata.ThisHost()
	if opt.Version != "" {
		host.DriverVersion = opt.Version
	}
	client := metadata.Client{AppName: cfg.AppName, Libraries: opt.Libraries, Host: host}
	return metadata.NewSource(client)
}

func topologyConfig(
	cfg *connstring.Config, opt Options, source *metadata.Source,
) (topology.Config, error) {
	if !(opt.MaxPinnedShare >= 0 && opt.MaxPinnedShare <= 1) { // not a number included
		return topology.Config{}, fmt.Errorf(
			"the share of pinned connections is %v, must be from 0 to 1", opt.MaxPinnedShare)
	}
	if !(opt.MaxRunOnShare >= 0 && opt.MaxRunOnShare <= 1) {
		return topology.Config{}, fmt.Errorf(
			"the share of operations without callers is %v, must be from 0 to 1",
			opt.MaxRunOnShare)
	}
	function := metadata.ThisHost().Environment.IsFunction()
	out := topology.Config{
		Seeds:                  cfg.Hosts,
		ReplicaSet:             cfg.ReplicaSet,
		DirectConnection:       isTrue(cfg.DirectConnection),
		LoadBalanced:           cfg.LoadBalanced,
		HeartbeatInterval:      valueOf(cfg.HeartbeatInterval),
		ServerSelectionTimeout: zeroIs(cfg.ServerSelectionTimeout, -1),
		LocalThreshold:         cfg.LocalThreshold,
		Polling:                polls(cfg.ServerMonitoringMode, function),
		Sink:                   opt.Sink,
		Conn: conn.Config{
			Metadata:       source.Document,
			Dialer:         opt.Dialer,
			Proxy:          proxy(&cfg.Proxy),
			ConnectTimeout: zeroIs(cfg.ConnectTimeout, -1),
			SocketTimeout:  valueOf(cfg.SocketTimeout),
			Compressors:    cfg.Compressors,
			ZlibLevel:      cfg.ZlibCompressionLevel,
			LoadBalanced:   cfg.LoadBalanced,
			ServerAPI:      opt.ServerAPI,
			Admit:          opt.AdmitReply,
			Spare:          opt.Spare,
			Turn:           opt.Turn,
			Compressed:     compressed(opt.Sink),
		},
		Pool: topology.PoolConfig{
			MaxSize:          cfg.MaxPoolSize,
			MinSize:          valueOf(cfg.MinPoolSize),
			MaxConnecting:    valueOf(cfg.MaxConnecting),
			MaxIdleTime:      valueOf(cfg.MaxIdleTime),
			WaitQueueTimeout: valueOf(cfg.WaitQueueTimeout),
			MaxPinned:        shareOf(cfg.MaxPoolSize, opt.MaxPinnedShare),
			Caller:           opt.Caller,
		},
	}
	if cfg.WaitQueueTimeout == nil {
		out.Pool.WaitLimit = opt.WaitLimit
	}
	var err error
	if out.Conn.Auth, err = authenticator(cfg, opt); err != nil || !cfg.UseTLS() {
		return out, err
	}
	secure := opt.TLS
	if secure == nil {
		if secure, err = conn.NewTLS(cfg.TLS); err != nil {
			return out, err
		}
	}
	out.Conn.TLS, out.Conn.Revocation = secure.Config, secure.Revocation()
	return out, nil
}

// shareOf returns that share of a pool, rounded down, and at least 1. It returns 0, which sets
// no bound, for no share and for a pool without a maximum.
func shareOf(size *uint64, share float64) uint64 {
	most := uint64(pool.DefaultMaxSize)
	if size != nil {
		most = *size
	}
	if share == 0 || most == 0 {
		return 0
	}
	const rounding = 1e-9 // 0.29 of 100 is 29
	return max(1, uint64(share*float64(most)+rounding))
}

// polls reports whether servers are polled at each interval instead of streaming. A function as a
// service may be frozen between two requests, and finds its connections dead afterwards.
func polls(mode string, isFunction bool) bool {
	return mode == "poll" || mode != "stream" && isFunction
}

// proxy returns the proxy of the connection string, nil if there is none.
func proxy(p *connstring.Proxy) *conn.Proxy {
	if p.Host == "" {
		return nil
	}
	port := p.Port
	if port == 0 {
		port = connstring.DefaultProxyPort
	}
	return &conn.Proxy{
		Address:  net.JoinHostPort(p.Host, strconv.Itoa(int(port))),
		Username: p.Username,
		Password: p.Password,
	}
}

func valueOf[T any](v *T) (zero T) {
	if v == nil {
		return zero
	}
	return *v
}

// zeroIs returns the duration, with an explicit 0 translated for a package whose zero is the
// default.
func zeroIs(v *time.Duration, meaning time.Duration) time.Duration {
	if v != nil && *v == 0 {
		return meaning
	}
	return valueOf(v)
}

// ReadPreference returns the read preference of the connection string, nil if it has none.
func ReadPreference(cfg *connstring.Config) (*selection.ReadPreference, error) {
	if cfg.ReadPreference == "" && cfg.ReadPreferenceTags == nil && cfg.MaxStaleness == nil {
		return nil, nil
	}
	rp := &selection.ReadPreference{}
	if cfg.ReadPreference != "" {
		mode, err := selection.ParseMode(cfg.ReadPreference)
		if err != nil {
			return nil, fmt.Errorf("connection string: %w", err)
		}
		rp.Mode = mode
	}
	for _, set := range cfg.ReadPreferenceTags {
		tags := make([]description.Tag, 0, len(set))
		for _, tag := range set {
			tags = append(tags, description.Tag(tag))
		}
		rp.TagSets = append(rp.TagSets, description.NewTagSet(tags...))
	}
	if cfg.MaxStaleness != nil {
		rp.MaxStalenessSeconds = new(int64(*cfg.MaxStaleness / time.Second))
	}
	if err := rp.Validate(); err != nil {
		return nil, fmt.Errorf("connection string: %w", err)
	}
	return rp, nil
}
