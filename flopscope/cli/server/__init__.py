"""What programs and agents are served with: tools of the Model Context Protocol, and a skill for agents."""
