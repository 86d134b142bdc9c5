"""What would make the best plan better: other machines, other strategies, each solved again."""
