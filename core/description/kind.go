package description

// ServerKind names the specification's ServerType. PossiblePrimary is ServerUnknown, as in every
// driver whose monitors run in parallel.
type ServerKind uint8

// The kinds of servers.
const (
	ServerUnknown ServerKind = iota
	ServerStandalone
	ServerMongos
	ServerRSPrimary
	ServerRSSecondary
	ServerRSArbiter
	ServerRSOther
	ServerRSGhost
	ServerLoadBalancer
	numServerKinds
)

var serverKindNames = [numServerKinds]string{
	ServerUnknown:      "Unknown",
	ServerStandalone:   "Standalone",
	ServerMongos:       "Mongos",
	ServerRSPrimary:    "RSPrimary",
	ServerRSSecondary:  "RSSecondary",
	ServerRSArbiter:    "RSArbiter",
	ServerRSOther:      "RSOther",
	ServerRSGhost:      "RSGhost",
	ServerLoadBalancer: "LoadBalancer",
}

// String returns the specification's name of the kind.
func (k ServerKind) String() string {
	if k < numServerKinds {
		return serverKindNames[k]
	}
	return "invalid"
}

// IsDataBearing reports whether such a server serves documents.
func (k ServerKind) IsDataBearing() bool {
	switch k {
	case ServerStandalone, ServerMongos, ServerRSPrimary, ServerRSSecondary, ServerLoadBalancer:
		return true
	case ServerUnknown, ServerRSArbiter, ServerRSOther, ServerRSGhost, numServerKinds:
	}
	return false
}

// Kind names the specification's TopologyType.
type Kind uint8

// The kinds of deployments.
const (
	KindUnknown Kind = iota
	KindSingle
	KindSharded
	KindReplicaSetNoPrimary
	KindReplicaSetWithPrimary
	KindLoadBalanced
	numKinds
)

var kindNames = [numKinds]string{
	KindUnknown:               "Unknown",
	KindSingle:                "Single",
	KindSharded:               "Sharded",
	KindReplicaSetNoPrimary:   "ReplicaSetNoPrimary",
	KindReplicaSetWithPrimary: "ReplicaSetWithPrimary",
	KindLoadBalanced:          "LoadBalanced",
}

// String returns the specification's name of the kind.
func (k Kind) String() string {
	if k < numKinds {
		return kindNames[k]
	}
	return "invalid"
}

// IsReplicaSet reports whether the deployment is a replica set, with or without a primary.
func (k Kind) IsReplicaSet() bool {
	return k == KindReplicaSetNoPrimary || k == KindReplicaSetWithPrimary
}
