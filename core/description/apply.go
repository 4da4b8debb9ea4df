package description

import (
	"cmp"
	"fmt"
	"slices"
)

// Apply returns the topology after a check: s is the server's new description. It is ignored if
// the server is not in the topology any more, and if the server has stated something newer.
// Otherwise the result holds s, unless the topology's rules replaced or removed it.
func (t Topology) Apply(s *Server) Topology {
	current := t.Server(s.Address)
	if current == nil || current.TopologyVersion.Compare(s.TopologyVersion) > 0 {
		return t
	}
	t.Servers = slices.Clone(t.Servers)
	t.replace(s)
	if act := transitions[t.Kind][s.Kind]; act != nil {
		act(&t, s)
	}
	t.refresh()
	return t
}

// action applies the description of a server to the topology that already holds it.
type action func(t *Topology, s *Server)

// transitions is the specification's TopologyType table. A missing entry keeps the server and
// changes nothing else.
var transitions = [numKinds][numServerKinds]action{
	KindUnknown: {
		ServerStandalone:  updateUnknownWithStandalone,
		ServerMongos:      becomeSharded,
		ServerRSPrimary:   updateRSFromPrimary,
		ServerRSSecondary: updateRSWithoutPrimary,
		ServerRSArbiter:   updateRSWithoutPrimary,
		ServerRSOther:     updateRSWithoutPrimary,
	},
	KindSingle: {
		ServerStandalone:  checkSetName,
		ServerMongos:      checkSetName,
		ServerRSPrimary:   checkSetName,
		ServerRSSecondary: checkSetName,
		ServerRSArbiter:   checkSetName,
		ServerRSOther:     checkSetName,
		ServerRSGhost:     checkSetName,
	},
	KindSharded: {
		ServerStandalone:  removeServer,
		ServerRSPrimary:   removeServer,
		ServerRSSecondary: removeServer,
		ServerRSArbiter:   removeServer,
		ServerRSOther:     removeServer,
		ServerRSGhost:     removeServer,
	},
	KindReplicaSetNoPrimary: {
		ServerStandalone:  removeServer,
		ServerMongos:      removeServer,
		ServerRSPrimary:   updateRSFromPrimary,
		ServerRSSecondary: updateRSWithoutPrimary,
		ServerRSArbiter:   updateRSWithoutPrimary,
		ServerRSOther:     updateRSWithoutPrimary,
	},
	KindReplicaSetWithPrimary: {
		ServerUnknown:     checkIfHasPrimary,
		ServerStandalone:  removeFromRS,
		ServerMongos:      removeFromRS,
		ServerRSPrimary:   updateRSFromPrimary,
		ServerRSSecondary: updateRSWithPrimaryFromMember,
		ServerRSArbiter:   updateRSWithPrimaryFromMember,
		ServerRSOther:     updateRSWithPrimaryFromMember,
		ServerRSGhost:     checkIfHasPrimary,
	},
}

// removeServer removes a server of a kind that has no place in such a deployment.
func removeServer(t *Topology, s *Server) {
	t.remove(s.Address, fmt.Errorf("%s is of kind %v, which does not belong to a deployment of "+
		"kind %v",
		s.Address, s.Kind, t.Kind))
}

func becomeSharded(t *Topology, _ *Server) { t.Kind = KindSharded }

// checkSetName holds a direct connection to the replica set that it was configured for.
func checkSetName(t *Topology, s *Server) {
	if t.SetName != "" && t.SetName != s.SetName {
		t.replace(Unknown(s.Address, fmt.Errorf(
			"server is a member of replica set %q, configured is %q", s.SetName, t.SetName)))
	}
}

func updateUnknownWithStandalone(t *Topology, s *Server) {
	if t.seeds == 1 {
		t.Kind = KindSingle
		return
	}
	t.remove(s.Address,
		fmt.Errorf("%s is a standalone server, but %d servers are configured", s.Address, t.seeds))
}

func removeFromRS(t *Topology, s *Server) {
	removeServer(t, s)
	checkIfHasPrimary(t, s)
}

func checkIfHasPrimary(t *Topology, _ *Server) {
	t.Kind = KindReplicaSetNoPrimary
	if t.Primary() != nil {
		t.Kind = KindReplicaSetWithPrimary
	}
}

// adoptSetName tells whether s belongs to the topology's replica set; the first member to answer
// names it.
func adoptSetName(t *Topology, s *Server) bool {
	if t.SetName == "" {
		t.SetName = s.SetName
	}
	return t.SetName == s.SetName
}

// removeAlien removes a member of another replica set.
func removeAlien(t *Topology, s *Server) {
	t.remove(s.Address,
		fmt.Errorf("%s is a member of replica set %q, not of %q", s.Address, s.SetName, t.SetName))
}

// removeAlias removes a member that goes by another name in its replica set.
func removeAlias(t *Topology, s *Server) {
	t.remove(s.Address, fmt.Errorf("%s calls itself %s", s.Address, s.Me))
}

// hasOtherName tells whether the member calls itself otherwise than the driver does. Then the
// set's own list of its members leads to it under its right name.
func hasOtherName(s *Server) bool { return s.Me != "" && s.Me != s.Address }

func updateRSWithoutPrimary(t *Topology, s *Server) {
	t.Kind = KindReplicaSetNoPrimary
	if !adoptSetName(t, s) {
		removeAlien(t, s)
		return
	}
	for _, member := range s.members() {
		t.add(member)
	}
	if hasOtherName(s) {
		removeAlias(t, s)
	}
}

// updateRSWithPrimaryFromMember adds no server. While there is a primary, only its list of members
// counts.
func updateRSWithPrimaryFromMember(t *Topology, s *Server) {
	if t.SetName != s.SetName {
		removeAlien(t, s)
	} else if hasOtherName(s) {
		removeAlias(t, s)
	}
	checkIfHasPrimary(t, s)
}

func updateRSFromPrimary(t *Topology, s *Server) {
	if !adoptSetName(t, s) {
		removeAlien(t, s)
		checkIfHasPrimary(t, s)
		return
	}
	if isStalePrimary(t, s) {
		t.replace(Unknown(s.Address, fmt.Errorf(
			"primary marked stale due to electionId/setVersion mismatch, %s is stale compared "+
				"to %s",
			electionTuple(s.ElectionID, s.SetVersion),
			electionTuple(t.MaxElectionID, t.MaxSetVersion))))
		checkIfHasPrimary(t, s)
		return
	}
	recordElection(t, s)
	for i, other := range t.Servers {
		if other != s && other.Kind == ServerRSPrimary {
			t.Servers[i] = Unknown(other.Address, errOldPrimary)
		}
	}
	t.setMembers(s)
	checkIfHasPrimary(t, s)
}

var errOldPrimary = fmt.Errorf("primary marked stale due to discovery of newer primary")

// setMembers makes the topology hold exactly the members that the primary lists.
func (t *Topology) setMembers(primary *Server) {
	members := primary.members()
	for _, s := range slices.Clone(t.Servers) {
		if !slices.Contains(members, s.Address) {
			t.remove(s.Address,
				fmt.Errorf("%s is not in the member list of the primary %s", s.Address,
					primary.Address))
		}
	}
	for _, member := range members {
		t.add(member)
	}
}

// isStalePrimary reports whether s is older than the newest primary that t knows. Since MongoDB 6.0
// the election counts first. Before it, the configuration's version did, and a primary that states
// only one of the two was always trusted.
func isStalePrimary(t *Topology, s *Server) bool {
	election := compareElectionIDs(s.ElectionID, t.MaxElectionID)
	version := compareVersions(s.SetVersion, t.MaxSetVersion)
	if s.MaxWireVersion >= wireVersionMongoDB60 {
		return cmp.Or(election, version) < 0
	}
	return statesBoth(s) && t.MaxSetVersion != nil && !t.MaxElectionID.IsZero() &&
		cmp.Or(version, election) < 0
}

// recordElection records the election and the version of s. Since 6.0 both are overwritten, even by
// less; before, the version only rose.
func recordElection(t *Topology, s *Server) {
	if s.MaxWireVersion >= wireVersionMongoDB60 {
		t.MaxElectionID, t.MaxSetVersion = s.ElectionID, s.SetVersion
		return
	}
	if statesBoth(s) {
		t.MaxElectionID = s.ElectionID
	}
	if compareVersions(s.SetVersion, t.MaxSetVersion) > 0 {
		t.MaxSetVersion = s.SetVersion
	}
}

func statesBoth(s *Server) bool { return s.SetVersion != nil && !s.ElectionID.IsZero() }

// compareVersions sorts none below any.
func compareVersions(a, b *int64) int {
	switch {
	case a == nil && b == nil:
		return 0
	case a == nil:
		return -1
	case b == nil:
		return 1
	}
	return cmp.Compare(*a, *b)
}
