package flood

// MostSources is how many addresses without connections are remembered.
const MostSources = mostSources

// Sources returns how many addresses are remembered.
func (g *Guard) Sources() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return len(g.of)
}
