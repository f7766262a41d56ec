from trinity.episode.roles import Role


def test_roles_stand_in_the_order_of_the_role_logits() -> None:
    assert [role.title for role in Role] == ["Thinker", "Worker", "Verifier"]
    assert [int(role) for role in Role] == [0, 1, 2]
