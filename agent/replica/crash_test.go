package replica

const roleVariable = "HAAGENT_REPLICA_ROLE"

func play(string) int { return 2 }
