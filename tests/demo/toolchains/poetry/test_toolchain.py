from markupsafe import escape


def test_a_package_of_the_project():
    assert str(escape("<b>")) == "&lt;b&gt;"
